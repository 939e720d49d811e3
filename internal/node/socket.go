package node

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/perdure/perdure/internal/authn"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/grpcapi"
	"github.com/perdure/perdure/internal/store/sqlite"
)

// maxSocketPath is how long the path of a Unix socket may be on every system.
const maxSocketPath = 100

// SocketPath returns the path of the socket of the program that has a SQLite file open; false for
// other stores. The socket is next to the file, or in the directory for temporary files if its path
// would be too long.
func SocketPath(url string) (path string, ok bool) {
	if scheme, _, _ := strings.Cut(url, ":"); !strings.EqualFold(scheme, "file") {
		return "", false
	}
	c, err := sqlite.ParseURL(url)
	if err != nil || c.ReadOnly {
		return "", false
	}

	file, err := filepath.Abs(c.Path)
	if err != nil {
		return "", false
	}
	if real, err := filepath.EvalSymlinks(file); err == nil {
		file = real
	}
	if path = file + "-socket"; len(path) <= maxSocketPath {
		return path, true
	}

	sum := sha256.Sum256([]byte(file))
	return filepath.Join(os.TempDir(), "perdure-"+hex.EncodeToString(sum[:8])+".socket"), true
}

// TrustedSocket reports whether a socket belongs to the user who owns the store. Any user can
// create files in the directory for temporary files.
func TrustedSocket(url, path string) bool {
	c, err := sqlite.ParseURL(url)
	if err != nil {
		return false
	}
	file, err := os.Stat(c.Path)
	if err != nil {
		return false
	}
	socket, err := os.Lstat(path)
	return err == nil && socket.Mode().Type() == fs.ModeSocket && sameOwner(file, socket)
}

// Socket is a door for programs of the same user on the same machine, such as the command line.
type Socket struct {
	path   string
	server *grpcapi.Server
	done   chan struct{}
}

// ServeSocket listens on a Unix socket that only the user of this process can open, and serves one
// tenant there. Only one process can have the store open, and this process has it open. So if the
// socket already exists, a process that died has left it behind.
func (n *Node) ServeSocket(ctx context.Context, path, tenant string, cfg Config) (*Socket, error) {
	switch info, err := os.Lstat(path); {
	case errors.Is(err, fs.ErrNotExist):
	case err == nil && info.Mode().Type() != fs.ModeSocket:
		return nil, fault.New(fault.Conflict, "%s is in the way of the socket beside the store", path)
	default:
		if err := os.Remove(path); err != nil {
			return nil, fault.New(fault.Unavailable, "remove the socket of an earlier process: %w", err)
		}
	}
	lc := net.ListenConfig{Control: protectSocket}
	l, err := lc.Listen(ctx, "unix", path)
	if err != nil {
		return nil, fault.New(fault.Unavailable, "listen on the socket beside the store: %w", err)
	}
	if err := os.Chmod(path, 0o600); err != nil {
		return nil, errors.Join(fault.New(fault.Unavailable, "protect the socket beside the store: %w", err), l.Close())
	}

	s := &Socket{path: path, done: make(chan struct{}), server: grpcapi.New(grpcapi.Config{
		Backend: n.audit.Backend(n.service), Authenticator: authn.Open{Tenant: tenant}, Log: cfg.Log, Version: cfg.Version, MaxPayload: cfg.MaxPayload,
		Admin: n.Admin(tenant), Audit: n.audit.Admin, Door: authn.DoorSocket, Address: path,
	})}
	go func() {
		defer close(s.done)
		_ = s.server.Serve(l) // it ends with Close
	}()
	return s, nil
}

// socketDrain is how long callers may take when the program ends.
const socketDrain = time.Second

// Close ends the socket and removes it.
func (s *Socket) Close() {
	ctx, cancel := context.WithTimeout(context.Background(), socketDrain)
	defer cancel()
	s.server.Shutdown(ctx)
	<-s.done
	_ = os.Remove(s.path) // closing the listener removes it as well
}
