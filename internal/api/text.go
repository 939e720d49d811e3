package api

import (
	"bytes"
	"strconv"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/perdure/perdure/internal/fault"
)

// CheckText returns an error for JSON with a text that is not Unicode: bytes that are not UTF-8, or
// an escape such as \ud800, which is one half of a character. JSON decoders replace such a text or
// refuse it, so the code of an execution would get another text, or none. CheckText does not check
// whether the data is JSON.
func CheckText(data []byte) error {
	if !utf8.Valid(data) {
		return fault.New(fault.Invalid, "a text in it is not valid UTF-8")
	}

	for {
		i := bytes.IndexByte(data, '\\')
		if i < 0 {
			return nil
		}

		data = data[i:]
		first, ok := escaped(data)
		switch {
		case !ok: // another escape, such as \\
			data = data[min(2, len(data)):]
			continue
		case utf16.IsSurrogate(first):
			second, _ := escaped(data[escapeSize:])
			if utf16.DecodeRune(first, second) == utf8.RuneError {
				return fault.New(fault.Invalid, "a text in it has the escape %s, which is one half of a character", data[:escapeSize])
			}
			data = data[escapeSize:]
		}
		data = data[escapeSize:]
	}
}

// escapeSize is the length of an escape such as \u00e9.
const escapeSize = 6

// escaped returns the number of the escape \uXXXX at the beginning of the data, if there is one.
func escaped(data []byte) (rune, bool) {
	if len(data) < escapeSize || data[0] != '\\' || data[1] != 'u' {
		return 0, false
	}
	n, err := strconv.ParseUint(string(data[2:escapeSize]), 16, 16)
	return rune(n), err == nil
}
