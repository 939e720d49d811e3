package archtest

import (
	"regexp"
	"strings"
)

// banned finds expressions that make a sentence hard to read: actors without a name, and words that
// people do not use in conversation. The house rules on prose are in docs/prose.md.
//
// A key lists the first words of expressions. Its value is a pattern for the words that follow, or
// "" if the first word alone is banned.
var banned = newExpressions(map[string]string{
	// Unnamed actors.
	"whoever whosoever nobody somebody anybody everybody whom": "",

	"those":  `who|of|that|which`,
	"he one": `who`,
	"what":   `comes|came|is told|was told|is said|waits|stands|lies`,
	"of":     `which|whom`,

	// Archaic or foreign turns of phrase.
	"anymore meanwhile mend mends mended mending ere lest thereof therein thereby hereby herein hence": "",
	"thus upon whence hither albeit shall beholden betimes":                                            "",

	"no":         `more|one`,
	"any":        `more`,
	"come comes": `to nothing`,
	"in":         `vain`,
	"inside":     `of`,
	"for":        `ever|good`,
	"save":       `for`,

	"is":           `told|heard|made good|taken for|let go|to be had|of no use|no matter|none of`,
	"are was were": `told|heard|made good|taken for|let go|to be had|of no use|no matter`,
	"be":           `told|heard|made good|taken for|let go|to be had|of no use|no matter`,
	"would":        `be none`,
	"see sees":     `to it`,
	"bear bears":   `with|it|the`,
	"has":          `it that`,
	"as":           `it were`,
	"so":           `to speak`,
	"by":           `itself alone`,
	"at":           `all events|the latest by`,
	"know knows":   `(nothing )?of`,
	"knew heard":   `of`,
	"hears":        `of`,
	"want wants":   `nothing`,
	"nothing":      `of it`,
	"less":         `than nothing`,
	"goes went":    `on with`,
	"on":           `(his|her|its|their) own account`,
})

// expressions are patterns for the text behind a word, by that word in lower case. The pattern is
// nil if the word needs no further words. A search for one regular expression with all of them
// takes twenty times as long.
type expressions map[string]*regexp.Regexp

// newExpressions compiles the patterns of a table.
func newExpressions(table map[string]string) expressions {
	e := expressions{}
	for words, rest := range table {
		var pattern *regexp.Regexp
		if rest != "" {
			pattern = regexp.MustCompile(`^(?i: (` + rest + `)\b)`)
		}
		for word := range strings.FieldsSeq(words) {
			e[word] = pattern
		}
	}
	return e
}

// find returns the first expression in a text, or "".
func (e expressions) find(text string) string {
	for start := 0; start < len(text); {
		if !inWord(text[start]) {
			start++
			continue
		}
		end := start + 1
		for end < len(text) && inWord(text[end]) {
			end++
		}

		if pattern, ok := e[strings.ToLower(text[start:end])]; ok {
			if pattern == nil {
				return text[start:end]
			}
			if rest := pattern.FindString(text[end:]); rest != "" {
				return text[start:end] + rest
			}
		}
		start = end
	}
	return ""
}

// inWord reports whether a byte belongs to a word.
func inWord(b byte) bool {
	return b == '_' || '0' <= b && b <= '9' || 'A' <= b && b <= 'Z' || 'a' <= b && b <= 'z'
}
