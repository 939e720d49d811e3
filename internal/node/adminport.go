package node

import (
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/perdure/perdure/internal/authn"
	"github.com/perdure/perdure/internal/fault"
)

// mostProfiles is how many profiles may be made at the same time: each costs the server time.
const mostProfiles = 2

// longestProfile is how long a profile may take, with its transfer.
const longestProfile = 5 * time.Minute

// serveAdmin serves the profiles of the process (CPU, memory) to admins, on a separate address.
func (s *Server) serveAdmin(l net.Listener, cfg *ServerConfig) {
	s.adminAt = l.Addr()
	if cfg.TLS != nil {
		secure := cfg.TLS.Clone()
		secure.NextProtos, secure.MinVersion = []string{"http/1.1"}, max(secure.MinVersion, tls.VersionTLS12)
		l = tls.NewListener(l, secure)
	}
	s.admin = &http.Server{
		Handler: adminsOnly(cfg.Authenticator, cfg.Profiles), ReadHeaderTimeout: sniffTime, ReadTimeout: time.Minute, WriteTimeout: longestProfile, IdleTimeout: time.Minute,
		MaxHeaderBytes: 64 << 10, ErrorLog: slog.NewLogLogger(cfg.Node.Log.Handler(), slog.LevelDebug),
	}
	s.serve("profiles", func() error {
		if err := s.admin.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			return err
		}
		return nil
	})
}

// AdminAddr returns the address of the profiles; nil without one.
func (s *Server) AdminAddr() net.Addr { return s.adminAt }

// authenticates says who is calling.
type authenticates interface {
	Authenticate(ctx context.Context, header map[string][]string) (authn.Identity, error)
}

// adminsOnly passes the requests of admins to next, at most mostProfiles at the same time. It
// refuses all other requests.
func adminsOnly(auth authenticates, next http.Handler) http.Handler {
	room := make(chan struct{}, mostProfiles)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		header := map[string][]string{}
		for name, values := range r.Header {
			header[strings.ToLower(name)] = values
		}
		who, err := auth.Authenticate(r.Context(), header)
		switch {
		case err != nil && fault.Is(err, fault.Unauthenticated):
			http.Error(w, err.Error(), http.StatusUnauthorized)
			return
		case err != nil:
			http.Error(w, err.Error(), http.StatusForbidden)
			return
		case !who.Admin:
			http.Error(w, "only admins may use this address", http.StatusForbidden)
			return
		}

		select {
		case room <- struct{}{}:
			defer func() { <-room }()
			w.Header().Set("X-Content-Type-Options", "nosniff")
			w.Header().Set("Cache-Control", "no-store")
			next.ServeHTTP(w, r)
		default:
			http.Error(w, "other profiles are being made: try again later", http.StatusTooManyRequests)
		}
	})
}
