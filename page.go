package perdure

import "iter"

// pages reads a list page by page and yields its items, each converted by show. next gets the
// cursor of a page and returns the items of that page and the cursor of the following page. The
// first page has an empty cursor. When next returns an empty cursor, the list ends. When next
// returns an error, pages yields the error with a zero item and ends.
func pages[S, T any](show func(*S) T, next func(cursor string) ([]S, string, error)) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		for cursor := ""; ; {
			items, after, err := next(cursor)
			if err != nil {
				yield(*new(T), public(err))
				return
			}
			for i := range items {
				if !yield(show(&items[i]), nil) {
					return
				}
			}
			if cursor = after; cursor == "" {
				return
			}
		}
	}
}
