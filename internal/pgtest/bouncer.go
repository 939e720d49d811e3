package pgtest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// PoolMode says when PgBouncer gives a server connection to another client. The names come from
// PgBouncer.
type PoolMode string

const (
	// PoolSession keeps a server connection for one client until the client disconnects.
	PoolSession PoolMode = "session"
	// PoolTransaction shares server connections between clients, transaction by transaction.
	PoolTransaction PoolMode = "transaction"
)

// Bouncer is a PgBouncer in front of a test server.
type Bouncer struct {
	port    int
	log     string
	process *process
}

// StartBouncer starts a PgBouncer in front of s for this test alone and stops it when the test
// ends. Except for the size of its pool it has default settings. So it refuses connections with
// startup parameters that it does not know.
func (s *Server) StartBouncer(t testing.TB, mode PoolMode, size int) *Bouncer {
	t.Helper()
	b, err := s.openBouncer(t.Context(), mode, size)
	if err != nil {
		t.Fatalf("pgtest: start pgbouncer: %v", err)
	}
	t.Cleanup(func() {
		_ = b.process.signal(syscall.SIGKILL) // it has no data that could be damaged
		if err := b.process.wait(stopTimeout); err != nil {
			t.Errorf("pgtest: stop pgbouncer: %v", err)
		}
	})
	return b
}

// URL returns the connection URL of a database, with the address of the bouncer instead of the
// server.
func (b *Bouncer) URL(server string) string {
	u, err := url.Parse(server)
	if err != nil {
		// The URL is a mistake in the test, which the driver reports.
		return server
	}
	u.Host = net.JoinHostPort("127.0.0.1", strconv.Itoa(b.port))
	return u.String()
}

// Log returns what the bouncer has logged so far.
func (b *Bouncer) Log() string {
	text, err := os.ReadFile(b.log)
	if err != nil {
		return "(" + err.Error() + ")"
	}
	return string(text)
}

func (s *Server) openBouncer(ctx context.Context, mode PoolMode, size int) (*Bouncer, error) {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	binary, err := findBouncer()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp(s.home.dir, "bouncer-")
	if err != nil {
		return nil, err
	}

	// Another process may take the port between our check and the bind of PgBouncer, so try
	// several.
	for range 10 {
		b := &Bouncer{log: filepath.Join(dir, "log")}
		if b.port, err = FreePort(); err != nil {
			return nil, err
		}
		if err = s.configureBouncer(dir, b.port, mode, size); err != nil {
			return nil, err
		}
		if err = s.launchBouncer(ctx, b, binary, filepath.Join(dir, "pgbouncer.ini")); err == nil {
			return b, nil
		}
		if !strings.Contains(b.Log(), "in use") {
			break
		}
	}

	return nil, err
}

// findBouncer returns the path of pgbouncer. Debian installs it in a directory that only root has
// in its PATH.
func findBouncer() (string, error) {
	for _, name := range []string{"pgbouncer", "/usr/sbin/pgbouncer"} {
		if path, err := exec.LookPath(name); err == nil {
			return path, nil
		}
	}
	return "", errors.New("pgbouncer is not installed: run scripts/setup.sh or `apt-get install pgbouncer`")
}

// configureBouncer writes the configuration and the list of users into dir. Only the user of the
// server can read them.
func (s *Server) configureBouncer(dir string, port int, mode PoolMode, size int) error {
	users := filepath.Join(dir, "users")
	text := fmt.Sprintf(`[databases]
* = host=127.0.0.1 port=%d
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = %d
unix_socket_dir =
auth_type = md5
auth_file = %s
pool_mode = %s
default_pool_size = %d
max_client_conn = 500
`, s.port, port, users, mode, size)

	files := map[string]string{
		filepath.Join(dir, "pgbouncer.ini"): text,
		users:                               fmt.Sprintf("%q %q\n", superuser, s.password),
	}
	for path, content := range files {
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			return err
		}
	}

	if s.user == nil {
		return nil
	}

	for _, path := range []string{dir, filepath.Join(dir, "pgbouncer.ini"), users} {
		if err := os.Chown(path, s.user.uid, s.user.gid); err != nil {
			return err
		}
	}

	return nil
}

// launchBouncer starts the process and waits until it passes a connection on to the server.
func (s *Server) launchBouncer(ctx context.Context, b *Bouncer, binary, config string) error {
	logged, err := os.OpenFile(b.log, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	defer logged.Close()
	cmd := s.run(binary, config)
	cmd.Stdout, cmd.Stderr = logged, logged
	if b.process, err = startProcess(cmd); err != nil {
		return err
	}

	target := b.URL(s.URL(superuser))
	for {
		if err = pingThrough(ctx, target); err == nil {
			return nil
		}
		select {
		case <-b.process.exited:
			return fmt.Errorf("it ended while starting; it says:\n%s", b.Log())
		case <-ctx.Done():
			_ = b.process.signal(syscall.SIGKILL)
			return fmt.Errorf("not ready: %w; it says:\n%s", err, b.Log())
		case <-time.After(readyInterval):
		}
	}
}

func pingThrough(ctx context.Context, target string) error {
	conn, err := pgx.Connect(ctx, target)
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	return conn.Ping(ctx)
}
