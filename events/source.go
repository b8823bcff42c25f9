package events

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
)

// source is a window that slides over JSON text: it finds where a value ends without holding more than that value. It
// frames values, and leaves it to encoding/json to say whether they are sound.
type source struct {
	r     io.Reader
	buf   []byte
	pos   int   // of the next byte in buf
	keep  int   // first byte of buf that is still needed, at most pos; -1 for none
	base  int64 // offset of buf[0] in the text
	limit int   // how many bytes may be kept
	blank int   // how many bytes of white space may follow one another
	err   error // what reading ended with; sticky

	counted int // lines are counted up to here in buf
	line    int // the line that buf[counted] is on, from 1

	deepest int // nesting of the values framed since hold
}

func newSource(r io.Reader, limit, blank int) *source {
	return &source{r: r, buf: make([]byte, 0, 32<<10), keep: -1, limit: limit, blank: blank, line: 1}
}

// inMemory is a source over text that is held anyway; it never copies or bounds it.
func inMemory(text []byte) *source {
	return &source{buf: text, keep: -1, limit: math.MaxInt, blank: math.MaxInt, line: 1, err: io.EOF}
}

// more reads further bytes, at least one. Everything before keep, or without one before pos, is forgotten. The error is
// io.EOF at the end of the text, the underlying reader's, or that what is kept would pass the limit.
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

// lineAt is the line that buf[i] is on. It is cheap where i does not go back.
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

// hold makes the next byte the first one that is kept, and kept returns what was kept up to pos. The bytes are good
// until the next call of the source.
func (s *source) hold()        { s.keep, s.deepest = s.pos, 0 }
func (s *source) release()     { s.keep = -1 }
func (s *source) kept() []byte { return s.buf[s.keep:s.pos] }

// peek is the next byte.
func (s *source) peek() (byte, error) {
	if s.pos == len(s.buf) {
		if err := s.more(); err != nil {
			return 0, err
		}
	}
	return s.buf[s.pos], nil
}

// space skips white space, and is the byte that follows it.
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

// offset is where pos is in the text.
func (s *source) offset() int64 { return s.base + int64(s.pos) }

func isSpace(c byte) bool { return c == ' ' || c == '\n' || c == '\r' || c == '\t' }

// value moves past the value that begins at pos. It trusts brackets and quotes alone. Where the text ends in it the
// error is io.EOF, but for a number or word, which cannot tell.
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

// The next two are the hot path: they look at bytes in the buffer directly, and ask for more where it ends.

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

// word moves past a number, true, false, null, or what stands in the place of one.
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

// until moves to the next byte c that is not within a value, if the object at hand goes on. Together with next it walks
// through JSON that is known to be valid.
func (s *source) until(c byte) bool {
	for ; s.pos < len(s.buf); s.pos++ {
		if s.buf[s.pos] == c {
			return true
		}
	}
	return false
}

// next is the value at pos, and moves past it.
func (s *source) next() []byte {
	start := s.pos
	_ = s.value()
	return s.buf[start:s.pos]
}

// maxDiagnosed is how much of a value that is too large diagnose looks at, in bytes: the decoder that it asks copies what
// it is given, and such a value is mostly one whose end was lost, near its beginning.
const maxDiagnosed = 1 << 20

// diagnose finds what is wrong with the value that begins at buf[start], and where in buf: the first thing that makes it
// no JSON, or, where there is none as far as the text is known, cause at pos.
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
