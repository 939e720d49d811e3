package perduretest

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/perdure/perdure"
)

// reader is a checker that accepts files which say so.
type reader struct{ seen []string }

func (r *reader) Check(_ context.Context, f io.Reader, defs ...perdure.Definition) error {
	data, err := io.ReadAll(f)
	if err != nil {
		return err
	}
	r.seen = append(r.seen, string(data))
	if len(defs) != 1 || string(data) != "right" {
		return errors.New("differs")
	}
	return nil
}

func TestReplayFiles(t *testing.T) {
	t.Parallel()
	files := fstest.MapFS{
		"testdata/a.history": {Data: []byte("right")}, "testdata/b.history": {Data: []byte("right")}, "testdata/c.txt": {Data: []byte("wrong")},
	}
	r := &reader{}
	t.Run("all", func(t *testing.T) { replayFiles(t, r, files, "testdata/*.history", payer) })
	if strings.Join(r.seen, " ") != "right right" {
		t.Errorf("seen %q", r.seen)
	}
	if err := replayFile(t.Context(), r, files, "testdata/c.txt", payer); err == nil {
		t.Error("a wrong history was accepted")
	}
	if err := replayFile(t.Context(), r, files, "testdata/d.history", payer); err == nil {
		t.Error("a file that does not exist was accepted")
	}
}
