package perdurerest

import (
	"context"
	"errors"
	"net/http"
)

// WithKey makes a client present a key of a tenant, or an admin key.
func WithKey(key string) (ClientOption, error) {
	if key == "" {
		return nil, errors.New("the key is empty")
	}
	return WithRequestEditorFn(func(_ context.Context, r *http.Request) error {
		r.Header.Set("Authorization", "Bearer "+key)
		return nil
	}), nil
}
