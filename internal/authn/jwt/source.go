package jwt

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/perdure/perdure/internal/fault"
)

// Times of a source.
const (
	// fetchTime is how long one fetch may take.
	fetchTime = 10 * time.Second
	// refreshEvery is how often the keys are read again. A key that the issuer removes from the set
	// stays trusted until the next successful read.
	refreshEvery = 5 * time.Minute
	// refreshLeast bounds how often tokens with unknown keys cause reads. Such a read starts
	// refreshLeast after the start of the previous read at the earliest.
	refreshLeast = time.Minute
)

// Source is where the keys of an issuer are: a file, a URL, or a URL that the issuer names.
type Source struct {
	place  string       // the file or URL of the keys, or the URL of the issuer's configuration
	issuer string       // the issuer that names the URL of its keys; empty if place has the keys
	client *http.Client // nil for a file
	wake   chan struct{}
	now    chan struct{}
}

func newSource(place string) *Source {
	return &Source{place: place, wake: make(chan struct{}, 1), now: make(chan struct{}, 1)}
}

// NewSource returns a source. A URL must use https, unless it is on this machine.
func NewSource(place string) (*Source, error) {
	s := newSource(place)
	if place == "" {
		return nil, fault.New(fault.Invalid, "tokens need a key set: a file or a URL")
	}
	if !strings.Contains(place, "://") {
		return s, nil
	}
	if err := checkURL("a key set", place, false); err != nil {
		return nil, err
	}
	s.client = newClient()
	return s, nil
}

// newClient returns a client that follows no redirects.
func newClient() *http.Client {
	return &http.Client{Timeout: fetchTime, CheckRedirect: func(*http.Request, []*http.Request) error {
		return errors.New("the server answered with a redirect, and redirects are not followed")
	}}
}

func isLoopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// Load reads the keys.
func (s *Source) Load(ctx context.Context) (*KeySet, error) {
	data, err := s.read(ctx)
	if err != nil {
		return nil, fault.New(fault.Unavailable, "read the key set: %w", err)
	}
	return ParseKeys(data)
}

func (s *Source) read(ctx context.Context) ([]byte, error) {
	switch {
	case s.client == nil:
		return os.ReadFile(s.place)
	case s.issuer == "":
		return s.get(ctx, s.place, maxSet)
	}
	place, err := s.locate(ctx)
	if err != nil {
		return nil, err
	}
	return s.get(ctx, place, maxSet)
}

// get returns the content of a URL, cut off after most+1 bytes. If the caller gets more than most
// bytes, it knows that the content is too long.
func (s *Source) get(ctx context.Context, place string, most int64) ([]byte, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, place, http.NoBody)
	if err != nil {
		return nil, err
	}
	r.Header.Set("Accept", "application/json")

	got, err := s.client.Do(r)
	if err != nil {
		return nil, err
	}
	defer got.Body.Close()
	if got.StatusCode != http.StatusOK {
		return nil, errors.New(got.Status)
	}

	return io.ReadAll(io.LimitReader(got.Body, most+1))
}

// Refresh asks Run to read the keys as soon as refreshLeast has passed since the last read. It does
// not block.
func (s *Source) Refresh() {
	select {
	case s.wake <- struct{}{}:
	default: // an earlier request to Run is still pending
	}
}

// Reload asks Run to read the keys immediately, because an operator asks for it. It does not block.
func (s *Source) Reload() {
	select {
	case s.now <- struct{}{}:
	default: // an earlier request to Run is still pending
	}
}

// Run reads the keys again every refreshEvery, and earlier after Refresh or Reload, until ctx ends.
// It passes the keys to got, or the error if they could not be read.
func (s *Source) Run(ctx context.Context, got func(*KeySet, error)) {
	next := time.NewTimer(refreshEvery)
	defer next.Stop()
	last := time.Now()
	for {
		select {
		case <-ctx.Done():
			return
		case <-next.C:
		case <-s.now:
		case <-s.wake:
			if wait := refreshLeast - time.Since(last); wait > 0 {
				next.Reset(min(wait, refreshEvery))
				continue
			}
		}

		last = time.Now()
		next.Reset(refreshEvery)
		keys, err := s.Load(ctx)
		if ctx.Err() != nil {
			return
		}
		got(keys, err)
	}
}
