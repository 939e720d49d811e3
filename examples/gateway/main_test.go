package main

import (
	"path/filepath"
	"testing"

	"github.com/perdure/perdure/examples/internal/printed"
	_ "github.com/perdure/perdure/internal/dialtest" // may put a server between the program and its engine
)

func TestGateway(t *testing.T) {
	t.Parallel()
	for name, url := range map[string]string{"memory": "memory:", "file": "file:" + filepath.Join(t.TempDir(), "gateway.db")} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var out printed.Text
			if err := run(t.Context(), url, out.Say); err != nil {
				t.Fatal(err)
			}
			if diff := printed.Diff(out.String(), "u-1 is eve", "u-1 is adam", "ok u-1", "ok o-1"); diff != "" {
				t.Error(diff)
			}
		})
	}
}
