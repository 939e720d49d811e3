package postgres

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/perdure/perdure/internal/fault"
)

// How long Open retries.
const (
	// openPatience applies if the caller has no deadline. One attempt to connect may take that
	// long (connectTimeout), so openAttempts applies too.
	openPatience    = 5 * time.Second
	openAttempts    = 2
	firstOpenPause  = 50 * time.Millisecond
	longestOpenWait = time.Second
)

// insist calls f until it succeeds, fails with an error that a retry cannot fix, or the deadline of
// ctx is near. If ctx has no deadline, insist tries at least openAttempts times to reach the
// server. A call of f that failed may have been applied. The next call of f must find that out. If
// insist gives up because of the time, its error says how many attempts there were.
func insist(ctx context.Context, f func(context.Context) error) error {
	begun := time.Now()
	deadline, ok := ctx.Deadline()
	least := 0
	if !ok {
		deadline, least = begun.Add(openPatience), openAttempts
	}

	var last error
	pause := firstOpenPause
	for attempt := 1; ; attempt++ {
		err := f(ctx)
		if err == nil {
			return nil
		}
		if last == nil || !timedOut(err) { // a timeout says less than an earlier error
			last = err
		}
		if !mayHeal(err) {
			return last
		}

		wait := pause/2 + rand.N(pause) //nolint:gosec // spreads processes that start together
		if ctx.Err() != nil || time.Now().Add(wait).After(deadline) && (attempt >= least || !Unreachable(err)) {
			return fmt.Errorf("%w (%d attempts in %s)", last, attempt, time.Since(begun).Round(time.Millisecond))
		}
		select {
		case <-ctx.Done():
		case <-time.After(wait):
		}
		pause = min(2*pause, longestOpenWait)
	}
}

func timedOut(err error) bool {
	network, ok := errors.AsType[net.Error](err)
	return ok && network.Timeout() || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled)
}

// mayHeal reports whether another attempt to open the store may succeed, because the network or the
// server failed and not the request.
func mayHeal(err error) bool {
	final := []fault.Kind{fault.Denied, fault.NotFound, fault.Invalid, fault.Conflict, fault.Corrupt}
	if slices.Contains(final, fault.KindOf(err)) {
		return false
	}

	if pg, ok := errors.AsType[*pgconn.PgError](err); ok {
		switch pg.Code {
		case codeLockNotAvailable, codeReadOnly, codeCompletionUnknown:
			return true
		}
		switch pg.Code[:min(2, len(pg.Code))] {
		case "08", "53", "57", "40": // connection, resources, operator intervention, conflicts
			return true
		}
		return false
	}

	if dns, ok := errors.AsType[*net.DNSError](err); ok {
		return !dns.IsNotFound
	}
	return !encryption(err)
}

// Unreachable reports whether a store could not be opened because its server does not answer, or
// refuses connections at the moment. A later attempt may succeed.
func Unreachable(err error) bool {
	if err == nil || !mayHeal(err) {
		return false
	}
	if pg, ok := errors.AsType[*pgconn.PgError](err); ok {
		class := pg.Code[:min(2, len(pg.Code))]
		return class == "08" || class == "53" || class == "57"
	}
	_, connecting := errors.AsType[*pgconn.ConnectError](err)
	_, network := errors.AsType[net.Error](err)
	return connecting || network
}

// encryption reports whether the error says that this process and the server disagree about TLS.
func encryption(err error) bool {
	var (
		verify    *tls.CertificateVerificationError
		alert     tls.AlertError
		header    tls.RecordHeaderError
		authority x509.UnknownAuthorityError
	)
	return errors.As(err, &verify) || errors.As(err, &alert) || errors.As(err, &header) || errors.As(err, &authority) ||
		strings.Contains(err.Error(), "server refused TLS connection") // the driver has no value for it
}
