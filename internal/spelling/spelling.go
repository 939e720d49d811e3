// Package spelling finds the word that a user meant, for errors about unknown names.
package spelling

import "slices"

// Nearest returns the known word that is most similar to word. known must not be empty.
func Nearest(word string, known []string) string {
	return slices.MinFunc(known, func(a, b string) int { return Distance(word, a) - Distance(word, b) })
}

// Distance is how many bytes must be inserted, removed or replaced to turn one text into the other.
// It takes time in proportion to the product of both lengths, so the caller must bound them.
func Distance(a, b string) int {
	// row[j] is the distance between the part of a before position i and the first j bytes of b.
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}

	for i := range len(a) {
		before := row[0] // the value on the diagonal, from the row above
		row[0] = i + 1
		for j := range len(b) {
			replaced := before
			if a[i] != b[j] {
				replaced++
			}
			before = row[j+1]
			row[j+1] = min(replaced, row[j]+1, row[j+1]+1)
		}
	}

	return row[len(b)]
}
