package events

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
)

// source is a window that slides over JSON text. It finds where a value ends without holding more than that value. It
// does not check values: encoding/json does.
type source struct {
	r     io.Reader
	buf   []byte
	pos   int   // of the next byte in buf
	keep  int   // first byte of buf that must stay, at most pos; -1 for none
	base  int64 // offset of buf[0] in the text
	limit int   // how many bytes may be kept
	blank int   // how many bytes of white space may stand in a row
	err   error // that reading ended with; sticky

	counted int // lines are counted up to here in buf
	line    int // the line that buf[counted] is on, from 1

	deepest int // nesting of the values framed since hold
}

func newSource(r io.Reader, limit, blank int) *source {
	return &source{r: r, buf: make([]byte, 0, 32<<10), keep: -1, limit: limit, blank: blank, line: 1}
}

// inMemory returns a source over text in memory. It neither copies nor bounds it.
func inMemory(text []byte) *source {
	return &source{buf: text, keep: -1, limit: math.MaxInt, blank: math.MaxInt, line: 1, err: io.EOF}
}

// more reads at least one further byte. It forgets the text before keep, or before pos where nothing is kept. The error
// is io.EOF at the end of the text, the underlying reader's, or that the kept text would pass the limit.
func (s *source) more() error {
	if s.err != nil {
		return s.err
	}
	from := s.pos
	if s.keep >= 0 {
		from = s.keep
	}
	if len(s.buf)-from > s.limit {
		return s.tooLarge()
	}
	s.forget(from)
	if len(s.buf) == cap(s.buf) {
		s.buf = append(make([]byte, 0, min(2*cap(s.buf), s.limit+1)), s.buf...)
	}
	return s.read()
}

func (s *source) read() error {
	for range 100 {
		n, err := s.r.Read(s.buf[len(s.buf):cap(s.buf)])
		s.buf, s.err = s.buf[:len(s.buf)+n], err
		if n > 0 {
			return nil
		}
		if err != nil {
			return err
		}
	}
	s.err = io.ErrNoProgress
	return s.err
}

func (s *source) forget(n int) {
	if n == 0 {
		return
	}
	s.lineAt(n)
	s.buf = s.buf[:copy(s.buf, s.buf[n:])]
	s.base += int64(n)
	s.pos -= n
	s.counted -= n
	if s.keep >= 0 {
		s.keep -= n
	}
}

// lineAt returns the line of buf[i]. It is cheap while i does not decrease.
func (s *source) lineAt(i int) int {
	if i < s.counted {
		return s.line - bytes.Count(s.buf[i:s.counted], newline)
	}
	s.line += bytes.Count(s.buf[s.counted:i], newline)
	s.counted = i
	return s.line
}

var newline = []byte{'\n'}

func (s *source) tooLarge() error {
	return fmt.Errorf("a value is larger than %d bytes", s.limit)
}

// hold keeps the text from pos on, and kept returns it up to pos. The bytes are valid until the next call of the source.
func (s *source) hold()        { s.keep, s.deepest = s.pos, 0 }
func (s *source) release()     { s.keep = -1 }
func (s *source) kept() []byte { return s.buf[s.keep:s.pos] }

// peek returns the next byte.
func (s *source) peek() (byte, error) {
	if s.pos == len(s.buf) {
		if err := s.more(); err != nil {
			return 0, err
		}
	}
	return s.buf[s.pos], nil
}

// space skips white space, and returns the byte after it.
func (s *source) space() (byte, error) {
	for start := s.offset(); ; s.pos++ {
		c, err := s.peek()
		if err != nil || !isSpace(c) {
			return c, err
		}
		if s.offset()-start >= int64(s.blank) {
			return 0, fmt.Errorf("more than %d bytes of white space", s.blank)
		}
	}
}

// offset returns where pos is in the text.
func (s *source) offset() int64 { return s.base + int64(s.pos) }

func isSpace(c byte) bool { return c == ' ' || c == '\n' || c == '\r' || c == '\t' }

// value moves past the value that begins at pos, by its brackets and quotes alone. The error is io.EOF where the text
// ends within the value, unless that is a number or a word.
func (s *source) value() error {
	c, err := s.peek()
	if err != nil {
		return err
	}
	switch c {
	case '"':
		err = s.text()
	case '{', '[':
		err = s.nested()
	default:
		err = s.word()
	}
	if err == nil && s.keep >= 0 && s.pos-s.keep > s.limit {
		err = s.tooLarge()
	}
	return err
}

// text and nested are the hot path: they read the buffer directly, and call more where it ends.

func (s *source) text() error {
	for i := s.pos + 1; ; {
		for ; i < len(s.buf); i++ {
			switch s.buf[i] {
			case '"':
				s.pos = i + 1
				return nil
			case '\\':
				i++
			}
		}
		escaped := i - len(s.buf) // 1 where the buffer ends behind a backslash
		s.pos = len(s.buf)
		if err := s.more(); err != nil {
			return err
		}
		i = s.pos + escaped
	}
}

func (s *source) nested() error {
	depth := 0
	for {
		for ; s.pos < len(s.buf); s.pos++ {
			switch s.buf[s.pos] {
			case '"':
				if err := s.text(); err != nil {
					return err
				}
				s.pos--
			case '{', '[':
				depth++
				s.deepest = max(s.deepest, depth)
			case '}', ']':
				if depth--; depth == 0 {
					s.pos++
					return nil
				}
			}
		}
		if err := s.more(); err != nil {
			return err
		}
	}
}

// word moves past a number, true, false, null, or a malformed one.
func (s *source) word() error {
	for {
		c, err := s.peek()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if isSpace(c) || bytes.IndexByte([]byte(`,:"{}[]`), c) >= 0 {
			return nil
		}
		s.pos++
	}
}

// until moves to the next byte c, and reports whether there is one. The text must be valid JSON, and pos not within a
// value.
func (s *source) until(c byte) bool {
	for ; s.pos < len(s.buf); s.pos++ {
		if s.buf[s.pos] == c {
			return true
		}
	}
	return false
}

// next returns the value at pos, and moves past it. The text must be valid JSON.
func (s *source) next() []byte {
	start := s.pos
	_ = s.value()
	return s.buf[start:s.pos]
}

// maxDiagnosed is how many bytes of a value that is too large diagnose decodes: the decoder copies them. Most often the
// end of such a value was lost near its beginning.
const maxDiagnosed = 1 << 20

// diagnose returns what is wrong with the value that begins at buf[start], and where in buf: its first syntax error, or
// cause at pos where the text read so far has none.
func (s *source) diagnose(start int, cause error) (int, error) {
	known := s.buf[start:]
	if len(known) > s.limit {
		known = known[:min(len(known), maxDiagnosed)]
	}
	var value json.RawMessage
	err := json.NewDecoder(bytes.NewReader(known)).Decode(&value)
	if syntax := (*json.SyntaxError)(nil); errors.As(err, &syntax) {
		return start + max(int(syntax.Offset)-1, 0), syntax
	}
	return s.pos, cause
}
