package jwt

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/perdure/perdure/internal/fault"
)

// Times of a source.
const (
	// fetchTime is how long one fetch may take.
	fetchTime = 10 * time.Second
	// refreshEvery is how often the keys are read again. A key that was removed from the set is
	// trusted for at most this long.
	refreshEvery = 5 * time.Minute
	// refreshLeast is the least time between two reads that tokens with unknown keys cause.
	refreshLeast = time.Minute
)

// Source is where the keys of an issuer are: a file, or a URL.
type Source struct {
	place  string
	client *http.Client // nil for a file
	wake   chan struct{}
	now    chan struct{}
}

// NewSource returns a source. A URL must use https, unless it is on this machine.
func NewSource(place string) (*Source, error) {
	s := &Source{place: place, wake: make(chan struct{}, 1), now: make(chan struct{}, 1)}
	if place == "" {
		return nil, fault.New(fault.Invalid, "tokens need a key set: a file or a URL")
	}
	if !strings.Contains(place, "://") {
		return s, nil
	}

	u, err := url.Parse(place)
	if err != nil || u.Host == "" || u.User != nil {
		return nil, fault.New(fault.Invalid, "%.200q is not the URL of a key set", place)
	}
	if u.Scheme != "https" && (u.Scheme != "http" || !isLoopback(u.Hostname())) {
		return nil, fault.New(fault.Invalid, "the URL of the key set must use https")
	}

	s.client = &http.Client{Timeout: fetchTime, CheckRedirect: func(*http.Request, []*http.Request) error {
		return errors.New("the key set is somewhere else, and redirects are not followed")
	}}
	return s, nil
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
	if s.client == nil {
		return os.ReadFile(s.place)
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, s.place, nil)
	if err != nil {
		return nil, err
	}

	got, err := s.client.Do(r)
	if err != nil {
		return nil, err
	}
	defer got.Body.Close()
	if got.StatusCode != http.StatusOK {
		return nil, errors.New(got.Status)
	}

	return io.ReadAll(io.LimitReader(got.Body, maxSet+1))
}

// Refresh asks Run to read the keys soon. It does not block.
func (s *Source) Refresh() {
	select {
	case s.wake <- struct{}{}:
	default: // it is asked already
	}
}

// Reload asks Run to read the keys at once, for an operator. It does not block.
func (s *Source) Reload() {
	select {
	case s.now <- struct{}{}:
	default: // it is asked already
	}
}

// Run reads the keys again from time to time and passes them, or why they could not be read, to
// got, until ctx ends.
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
