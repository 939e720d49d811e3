package node_test

import (
	"net"
	"os"
	"path/filepath"
	"testing"

	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/node"
)

// The server does not replace a file that has the path of the socket. It replaces a socket that a
// dead process has left. Only the user who runs the server can open the new socket.
func TestSocketBesideTheStore(t *testing.T) {
	t.Parallel()
	n, err := node.Open(t.Context(), node.Config{URL: "memory:"})
	if err != nil {
		t.Fatal(err)
	}
	defer n.Close()
	dir := t.TempDir()
	file, link, left := filepath.Join(dir, "file"), filepath.Join(dir, "link"), filepath.Join(dir, "left")
	must(t, os.WriteFile(file, []byte("precious"), 0o600), os.Symlink(file, link))
	for _, path := range []string{file, link, dir} {
		if s, err := n.ServeSocket(t.Context(), path, model.DefaultTenant, node.Config{}); !fault.Is(err, fault.Conflict) {
			t.Errorf("%s is in the way: %v, %v", path, s, err)
		}
	}
	if text, err := os.ReadFile(file); string(text) != "precious" || err != nil {
		t.Errorf("the file has %q, %v", text, err)
	}

	old, err := new(net.ListenConfig).Listen(t.Context(), "unix", left)
	must(t, err)
	old.(*net.UnixListener).SetUnlinkOnClose(false)
	must(t, old.Close())
	s, err := n.ServeSocket(t.Context(), left, model.DefaultTenant, node.Config{})
	must(t, err)
	if info, err := os.Lstat(left); err != nil || info.Mode() != os.ModeSocket|0o600 {
		t.Errorf("the socket is %v, %v", info, err)
	}
	s.Close()
	if _, err := os.Lstat(left); !os.IsNotExist(err) {
		t.Errorf("the socket is left: %v", err)
	}
}

// The command line trusts only a socket of the user who owns the store: another user may have put
// one into the directory for temporary files.
func TestUntrustedSockets(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	store, socket, link := filepath.Join(dir, "a.db"), filepath.Join(dir, "socket"), filepath.Join(dir, "link")
	must(t, os.WriteFile(store, nil, 0o600))
	l, err := new(net.ListenConfig).Listen(t.Context(), "unix", socket)
	must(t, err)
	defer l.Close()
	must(t, os.Symlink(socket, link))

	url := "file:" + store
	if !node.TrustedSocket(url, socket) {
		t.Error("the own socket is not trusted")
	}
	for what, trusted := range map[string]bool{
		"a file": node.TrustedSocket(url, store), "a link": node.TrustedSocket(url, link), "nothing": node.TrustedSocket(url, socket+"2"),
		"a socket without a store": node.TrustedSocket("file:"+store+"2", socket), "the socket for a store without a file": node.TrustedSocket("postgres://h/d", socket),
	} {
		if trusted {
			t.Errorf("%s is trusted", what)
		}
	}

	if os.Getuid() != 0 {
		return // only root can give a socket away
	}
	must(t, os.Lchown(socket, 12345, 12345))
	if node.TrustedSocket(url, socket) {
		t.Error("the socket of another user is trusted")
	}
}

// must fails the test on an error.
func must(t *testing.T, errs ...error) {
	t.Helper()
	for _, err := range errs {
		if err != nil {
			t.Fatal(err)
		}
	}
}
