package pgtest

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// EnvBinaries names the environment variable with the directory of postgres and initdb.
const EnvBinaries = "PERDURE_TEST_PGBIN"

// howToInstall ends every error about a missing PostgreSQL.
const howToInstall = "install it with `apt-get install postgresql` or run scripts/setup.sh, " +
	"or set $" + EnvBinaries + " to the directory of its binaries"

// debianBinaries is where Debian installs one directory per version.
const debianBinaries = "/usr/lib/postgresql/*/bin"

// findBinaries returns the directory of the newest server binaries: $PERDURE_TEST_PGBIN, a
// directory that matches pattern, or one in PATH. scripts/setup.sh looks in the same places.
func findBinaries(pattern string) (string, error) {
	if dir := os.Getenv(EnvBinaries); dir != "" {
		if !hasBinaries(dir) {
			return "", fmt.Errorf("no PostgreSQL server in %s, to which $%s points; %s", dir, EnvBinaries, howToInstall)
		}
		return dir, nil
	}

	dirs, err := filepath.Glob(pattern)
	if err != nil {
		return "", err
	}
	dirs = slices.DeleteFunc(dirs, func(dir string) bool { return !hasBinaries(dir) })
	if len(dirs) > 0 {
		version := func(dir string) int {
			// names such as "9.6" are sorted as the oldest
			n, _ := strconv.Atoi(filepath.Base(filepath.Dir(dir)))
			return n
		}
		return slices.MaxFunc(dirs, func(a, b string) int { return version(a) - version(b) }), nil
	}

	if path, err := exec.LookPath("postgres"); err == nil && hasBinaries(filepath.Dir(path)) {
		return filepath.Dir(path), nil
	}
	return "", fmt.Errorf("no PostgreSQL server on this machine (postgres and initdb, in %s or PATH); %s", pattern, howToInstall)
}

// hasBinaries reports whether a directory has the programs that we run.
func hasBinaries(dir string) bool {
	for _, name := range []string{"postgres", "initdb"} {
		info, err := os.Stat(filepath.Join(dir, name))
		if err != nil || info.IsDir() || info.Mode()&0o111 == 0 {
			return false
		}
	}
	return true
}

// serverUser is the user that PostgreSQL runs as when we are root.
type serverUser struct{ uid, gid int }

// credential returns the user of a child process.
func (u *serverUser) credential() *syscall.Credential {
	return &syscall.Credential{Uid: uint32(u.uid), Gid: uint32(u.gid)}
}

// findServerUser returns nil when PostgreSQL can run as the current user.
func findServerUser() (*serverUser, error) {
	if os.Geteuid() != 0 {
		return nil, nil
	}
	account, err := user.Lookup("postgres")
	if err != nil {
		return nil, fmt.Errorf("PostgreSQL does not run as root, and there is no user to run it as: %w; the package creates one: %s", err, howToInstall)
	}

	uid, err := strconv.Atoi(account.Uid)
	if err != nil {
		return nil, err
	}
	gid, err := strconv.Atoi(account.Gid)
	if err != nil {
		return nil, err
	}

	return &serverUser{uid, gid}, nil
}

// home is the directory of one server. It contains only the data and the log of that server.
type home struct {
	dir      string
	lock     *os.File  // holds the lock that shows that dir is in use
	lifeline *os.File  // when it closes, the watchdog removes dir; it closes when we die
	watchdog *exec.Cmd // a shell that waits until lifeline is closed
}

// newHome creates a home that disappears with this process. parent may be "".
func newHome(parent string, owner *serverUser) (_ *home, err error) {
	if parent == "" {
		if parent, err = base(owner); err != nil {
			return nil, err
		}
		sweep(parent)
	}

	h := &home{}
	if h.dir, err = os.MkdirTemp(parent, "run-"); err != nil {
		return nil, err
	}

	defer func() {
		if err != nil {
			err = errors.Join(err, h.remove())
		}
	}()

	if owner != nil {
		if err := os.Chown(h.dir, owner.uid, owner.gid); err != nil {
			return nil, err
		}
	}

	if h.lock, err = os.Open(h.dir); err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(h.lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		return nil, fmt.Errorf("lock %s: %w", h.dir, err)
	}

	return h, h.watch()
}

// watch starts the watchdog. The watchdog has its own session, so that signals for the terminal or
// the process group of the tests do not reach it.
func (h *home) watch() error {
	read, write, err := os.Pipe()
	if err != nil {
		return err
	}
	defer read.Close()

	// The server may still be writing while it dies, so the script repeats the removal.
	const script = `cat >/dev/null; n=0; until rm -rf -- "$1" 2>/dev/null || [ $n -ge 50 ]; do n=$((n+1)); sleep 0.2; done`
	cmd := exec.Command("/bin/sh", "-c", script, "perdure-pgtest-watchdog", h.dir)
	cmd.Dir = "/"
	cmd.Stdin = read
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return errors.Join(fmt.Errorf("start watchdog: %w", err), write.Close())
	}

	h.watchdog, h.lifeline = cmd, write
	return nil
}

// remove removes the directory, its lock and its watchdog.
func (h *home) remove() error {
	var errs []error
	if h.watchdog != nil {
		errs = append(errs, h.lifeline.Close(), h.watchdog.Wait())
	}
	errs = append(errs, os.RemoveAll(h.dir))
	if h.lock != nil {
		errs = append(errs, h.lock.Close())
	}
	return errors.Join(errs...)
}

func (h *home) data() string { return filepath.Join(h.dir, "data") }
func (h *home) log() string  { return filepath.Join(h.dir, "log") }

// base returns the directory that holds the homes and templates of this user, and creates it.
func base(owner *serverUser) (string, error) {
	temp := os.TempDir()
	if owner != nil && !reachableByOthers(temp) {
		// root's temporary directory is private, and the server's user cannot enter it
		temp = "/tmp"
	}
	dir := filepath.Join(temp, "perdure-pgtest-"+strconv.Itoa(os.Geteuid()))
	if err := os.Mkdir(dir, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return "", err
	}

	// All users can write to the temporary directory, so another user may have created dir.
	info, err := os.Lstat(dir)
	if err != nil {
		return "", err
	}
	if stat, ok := info.Sys().(*syscall.Stat_t); !info.IsDir() || !ok || int(stat.Uid) != os.Geteuid() || info.Mode().Perm()&0o022 != 0 {
		return "", fmt.Errorf("%s must be a directory that belongs to this user and that no other user can write to; please remove it", dir)
	}

	return dir, nil
}

// reachableByOthers reports whether any user may enter dir.
func reachableByOthers(dir string) bool {
	for dir = filepath.Clean(dir); ; dir = filepath.Dir(dir) {
		info, err := os.Stat(dir)
		if err != nil || info.Mode()&0o001 == 0 {
			return false
		}
		if dir == filepath.Dir(dir) {
			return true
		}
	}
}

// unlockedFor is how old an unlocked home must be before sweep treats it as abandoned. A new home
// is locked only a moment after it was created.
const unlockedFor = time.Minute

// sweep removes homes whose owner and watchdog are both gone. It ignores errors, because the next
// run tries again.
func sweep(base string) {
	homes, err := filepath.Glob(filepath.Join(base, "run-*"))
	if err != nil {
		return
	}

	for _, dir := range homes {
		info, err := os.Stat(dir)
		if err != nil || time.Since(info.ModTime()) < unlockedFor {
			continue
		}
		lock, err := os.Open(dir)
		if err != nil {
			continue
		}
		if syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) == nil {
			_ = os.RemoveAll(dir)
		}
		_ = lock.Close()
	}
}

// initialize fills the data directory: from the template, which takes a tenth of a second, or with
// initdb.
//
// The template is one archive, not a directory tree, so that it exists completely or not at all,
// even after a clean-up of the temporary directory. A process creates the template under another
// name and then renames it. Two processes may do so at the same time; either result is fine.
func (s *Server) initialize(ctx context.Context, args []string) error {
	password := filepath.Join(s.home.data(), "perdure_password")
	version, err := s.output(ctx, s.command("postgres", "--version"))
	if err != nil {
		return err
	}
	parent, err := base(s.user)
	if err != nil {
		return err
	}
	// The first number is the format of the template. Raise it when the arguments of initdb below
	// change.
	key := sha256.Sum256([]byte("2\n" + s.binaries + "\n" + version))
	template := filepath.Join(parent, "template-"+hex.EncodeToString(key[:6])+".tar")

	cached := len(args) == 0
	if cached {
		if _, err := os.Stat(template); err == nil {
			archive, err := os.Open(template)
			if err != nil {
				return err
			}
			defer archive.Close()
			unpack := s.run("/bin/tar", "-xpf", "-")
			unpack.Stdin = archive
			if _, err := s.output(ctx, unpack); err != nil {
				return fmt.Errorf("unpack %s (remove it if it is damaged): %w", template, err)
			}
			return s.readPassword(password)
		}
	}
	if err := s.initdb(ctx, password, args); err != nil {
		return err
	}
	if cached {
		fresh := filepath.Join(s.home.dir, "template.tar")
		if _, err := s.output(ctx, s.run("/bin/tar", "-cf", fresh, "data")); err != nil {
			return err
		}
		if err := keepTemplate(fresh, template); err != nil {
			return err
		}
	}
	return s.readPassword(password)
}

// keepTemplate copies an archive and gives the complete copy the name of the template. The home may
// be on another file system (Options.Dir), where a rename alone would fail. Only the owner can read
// the template, because it contains the password.
func keepTemplate(archive, template string) (err error) {
	from, err := os.Open(archive)
	if err != nil {
		return err
	}
	defer from.Close()
	to, err := os.CreateTemp(filepath.Dir(template), "fresh-*.tar") // with mode 0600
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = os.Remove(to.Name())
		}
	}()

	if _, err := io.Copy(to, from); err != nil {
		return errors.Join(err, to.Close())
	}
	if err := to.Close(); err != nil {
		return err
	}
	if err := os.Rename(to.Name(), template); err != nil {
		return err
	}
	return os.Remove(archive)
}

// initdb creates the data directory. Connections need a random password: a server without one would
// give the rights of our user to every user of this machine. initdb stores the password as an MD5
// hash. Checking a password of the default kind, SCRAM, takes a third of the processor time of a
// short session. That cost protects against guessing, but 128 random bits cannot be guessed.
func (s *Server) initdb(ctx context.Context, passwordFile string, args []string) error {
	file := filepath.Join(s.home.dir, "password")
	if err := os.WriteFile(file, []byte(randomHex(16)), 0o600); err != nil {
		return err
	}

	if s.user != nil {
		if err := os.Chown(file, s.user.uid, s.user.gid); err != nil {
			return err
		}
	}

	cmd := s.command("initdb", append([]string{
		"--pgdata", s.home.data(), "--username", superuser, "--pwfile", file, "--auth", "md5",
		"--encoding", "UTF8", "--locale", "C", "--no-sync", "--no-instructions",
	}, args...)...)
	if _, err := s.output(ctx, cmd); err != nil {
		return err
	}

	return os.Rename(file, passwordFile) // in the data directory and the template
}

// readPassword reads the password that initdb set.
func (s *Server) readPassword(file string) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	s.password = strings.TrimSpace(string(text))
	return nil
}

// randomHex returns n random bytes in hexadecimal.
func randomHex(n int) string {
	b := make([]byte, n)
	_, _ = rand.Read(b) // never fails, see its documentation
	return hex.EncodeToString(b)
}
