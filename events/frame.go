package events

// Most of an event's bytes are images, which are checked here and decoded later.
// json.Valid runs a state machine over each byte, which took longer than all other
// work on a batch. A framer knows the JSON that DynamoDB and Lambda write. It
// leaves any other JSON, and malformed text, to the Reader and encoding/json, which
// are the reference in its tests.

// frame returns the end of the object that text begins with, and how deep it nests.
// It is ok only if the object is valid JSON without white space between tokens and
// without escapes.
func frame(text []byte) (end, deepest int, ok bool) {
	f := framer{text: text}
	if f.peek() != '{' || !f.value() {
		return 0, 0, false
	}
	return f.at, f.deepest, true
}

type framer struct {
	text               []byte
	at, depth, deepest int
}

// peek returns the next byte, or 0 at the end. No token begins with 0.
func (f *framer) peek() byte {
	if f.at == len(f.text) {
		return 0
	}
	return f.text[f.at]
}

func (f *framer) take(b byte) bool {
	if f.peek() != b {
		return false
	}
	f.at++
	return true
}

func (f *framer) value() bool {
	switch f.peek() {
	case '"':
		return f.string()
	case '{':
		return f.list('}')
	case '[':
		return f.list(']')
	case 't':
		return f.word("true")
	case 'f':
		return f.word("false")
	case 'n':
		return f.word("null")
	}
	return f.number()
}

// list moves past an object or an array, which ends with closing.
func (f *framer) list(closing byte) bool {
	if f.depth++; f.depth > MaxDepth {
		return false
	}
	f.deepest = max(f.deepest, f.depth)
	f.at++
	for first := true; !f.take(closing); first = false {
		if !first && !f.take(',') || closing == '}' && !(f.string() && f.take(':')) || !f.value() {
			return false
		}
	}
	f.depth--
	return true
}

func (f *framer) string() bool {
	if !f.take('"') {
		return false
	}
	for i, b := range f.text[f.at:] {
		if b == '"' {
			f.at += i + 1
			return true
		}
		if b < ' ' || b == '\\' {
			return false
		}
	}
	return false
}

func (f *framer) word(word string) bool {
	end := f.at + len(word)
	if end > len(f.text) || string(f.text[f.at:end]) != word {
		return false
	}
	f.at = end
	return true
}

func (f *framer) number() bool {
	f.take('-')
	first := f.peek()
	whole := f.digits()
	return whole > 0 && (whole == 1 || first != '0') && (!f.take('.') || f.digits() > 0) && f.exponent()
}

func (f *framer) exponent() bool {
	if !f.take('e') && !f.take('E') {
		return true
	}
	_ = f.take('+') || f.take('-')
	return f.digits() > 0
}

func (f *framer) digits() int {
	from := f.at
	for c := f.peek(); '0' <= c && c <= '9'; c = f.peek() {
		f.at++
	}
	return f.at - from
}
