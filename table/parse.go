package table

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"unicode/utf8"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
)

// ErrJSON says that text is not an item in DynamoDB JSON.
var ErrJSON = errors.New("not an item in DynamoDB JSON")

// attributeSize is about how many bytes of text an attribute of a bucket takes.
const attributeSize = 32

// usualAttributes is more than what a bucket of the usual few limits has. For
// more, room is made as they come.
const usualAttributes = 256

// maxItem bounds the text of an item, in bytes. DynamoDB's items are at most
// 400 KB, of which JSON can make ten times that. The values that are read from a
// text can take many times as much room again.
const maxItem = 4 << 20

// ParseItem reads an item in DynamoDB JSON, {"PK": {"S": "…"}, …}. It refuses text that
// is not JSON or is longer than any item of DynamoDB's, a value with no type or with
// several, and values nested deeper than DynamoDB allows. The error wraps ErrJSON and
// holds nothing of the text.
//
// ParseItem reads bytes straight into values, since reading images is most of the
// work of a batch. The AWS SDK's generic decoder takes many times as long. Tests
// compare the two.
func ParseItem(text []byte) (Item, error) {
	if len(text) > maxItem {
		return nil, fmt.Errorf("%w: more than %d bytes", ErrJSON, maxItem)
	}
	p := parser{text: text}
	item := Item(p.attributes(0))
	if p.space(); p.at < len(text) {
		p.fail("something follows the item")
	}
	if p.err != nil {
		return nil, p.err
	}
	return item, nil
}

// parser reads JSON of the one shape that items have. After the first failure
// it stands at the end of the text, where every method returns at once.
type parser struct {
	text []byte
	at   int
	err  error
}

func (p *parser) fail(cause string) {
	if p.err == nil {
		p.err = fmt.Errorf("%w: %s at byte %d", ErrJSON, cause, p.at)
	}
	p.at = len(p.text)
}

func (p *parser) space() {
	for p.at < len(p.text) {
		switch p.text[p.at] {
		case ' ', '\t', '\n', '\r':
			p.at++
		default:
			return
		}
	}
}

// next takes a byte if it comes next, after any space.
func (p *parser) next(b byte) bool {
	p.space()
	if p.at < len(p.text) && p.text[p.at] == b {
		p.at++
		return true
	}
	return false
}

func (p *parser) expect(b byte) {
	if !p.next(b) {
		p.fail("expected " + string(b))
	}
}

// list reads elements between two brackets, separated by commas.
func (p *parser) list(from, to byte, element func()) {
	p.expect(from)
	if p.next(to) {
		return
	}
	for p.err == nil {
		element()
		if p.next(to) {
			return
		}
		p.expect(',')
	}
}

// attributes reads named values: an item, or the inside of a map.
func (p *parser) attributes(depth int) map[string]types.AttributeValue {
	attributes := map[string]types.AttributeValue{}
	if depth == 0 {
		attributes = make(map[string]types.AttributeValue, min(len(p.text)/attributeSize, usualAttributes))
	}
	p.list('{', '}', func() {
		name := p.string()
		p.expect(':')
		attributes[name] = p.value(depth)
	})
	return attributes
}

// value reads {"TYPE": content}.
func (p *parser) value(depth int) (value types.AttributeValue) {
	if depth > maxNesting {
		p.fail("values nested too deep")
		return nil
	}
	p.expect('{')
	kind := p.string()
	p.expect(':')
	value = p.content(kind, depth)
	p.expect('}')
	return value
}

func (p *parser) content(kind string, depth int) types.AttributeValue {
	switch kind {
	case "S":
		return &types.AttributeValueMemberS{Value: p.string()}
	case "N":
		return &types.AttributeValueMemberN{Value: p.string()}
	case "B":
		return &types.AttributeValueMemberB{Value: p.binary()}
	case "BOOL":
		return &types.AttributeValueMemberBOOL{Value: p.bool()}
	case "NULL":
		return &types.AttributeValueMemberNULL{Value: p.bool()}
	case "SS":
		return &types.AttributeValueMemberSS{Value: set(p, p.string)}
	case "NS":
		return &types.AttributeValueMemberNS{Value: set(p, p.string)}
	case "BS":
		return &types.AttributeValueMemberBS{Value: set(p, p.binary)}
	case "L":
		return &types.AttributeValueMemberL{Value: collect(p, func() types.AttributeValue { return p.value(depth + 1) })}
	case "M":
		return &types.AttributeValueMemberM{Value: p.attributes(depth + 1)}
	}
	p.fail("a value of no known type")
	return nil
}

// collect reads an array.
func collect[T any](p *parser, element func() T) []T {
	list := []T{}
	p.list('[', ']', func() { list = append(list, element()) })
	return list
}

// set reads the members of a set. DynamoDB stores no empty set.
func set[T any](p *parser, member func() T) []T {
	members := collect(p, member)
	if len(members) == 0 {
		p.fail("an empty set")
	}
	return members
}

func (p *parser) bool() bool {
	if p.word("true") {
		return true
	}
	if !p.word("false") {
		p.fail("expected true or false")
	}
	return false
}

// word takes a word if it comes next, after any space.
func (p *parser) word(word string) bool {
	p.space()
	if !bytes.HasPrefix(p.text[p.at:], []byte(word)) {
		return false
	}
	p.at += len(word)
	return true
}

func (p *parser) binary() []byte {
	start := p.at
	decoded, err := base64.StdEncoding.DecodeString(p.string())
	if err != nil {
		p.at = start
		p.fail("binary that is not base64")
	}
	return decoded
}

// string reads a JSON string. Nearly every string has no escapes and is taken as it
// stands.
func (p *parser) string() string {
	p.expect('"')
	start, plain := p.at, true
	for p.at < len(p.text) {
		switch c := p.text[p.at]; {
		case c == '"':
			raw := p.text[start:p.at]
			p.at++
			if plain || utf8.Valid(raw) && bytes.IndexByte(raw, '\\') < 0 {
				return string(raw)
			}
			return p.unquote(start - 1)
		case c == '\\':
			plain = false
			p.at += 2
		case c < ' ':
			p.fail("a control character in a string")
		case c >= utf8.RuneSelf:
			plain = false
			p.at++
		default:
			p.at++
		}
	}
	p.at = min(p.at, len(p.text))
	p.fail("a string without end")
	return ""
}

// unquote decodes the string that ends here and began, with its quote, at start.
func (p *parser) unquote(start int) string {
	var text string
	if err := json.Unmarshal(p.text[start:p.at], &text); err != nil {
		p.at = start
		p.fail("a malformed string")
	}
	return text
}
