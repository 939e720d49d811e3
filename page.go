package perdure

import "iter"

// pages yields the items of a list that comes in pages, each as show makes it. next reads the page
// behind a cursor, which is empty for the first page, and returns the cursor of the page after it,
// which is empty when there is none. An error of next ends the list and comes with a zero item.
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
