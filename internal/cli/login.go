package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/charmbracelet/x/term"
	"github.com/spf13/cobra"

	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
)

// maxToken is how many bytes of a key or token login reads at most. A server accepts tokens of at
// most 8 KiB.
const maxToken = 16 << 10

func newLogin(o *options) *cobra.Command {
	var file string
	cmd := &cobra.Command{
		Annotations: map[string]string{noTarget: "yes"},
		Use:         "login [profile]", Short: "Check a key with the server of a profile, and store it for the profile", Args: cobra.MaximumNArgs(1),
		Long: `Check a key or a token with the server of a profile, and store it for the profile. Without an argument it is the profile that commands use.

On a terminal the command asks for the key and does not show it. Otherwise it reads standard input, or the file of --token-file. It stores the key in a file of its own next to the profiles (mode 0600), only after the server has accepted it. The key replaces the key file or the variable that the profile has named before; that file stays. If the profile has no tenant, it gets the tenant of the key.

perdure config set creates profiles, and perdure logout removes the stored key.`,
		Example:           "  perdure login prod\n  perdure login prod --token-file /run/secrets/perdure\n  perdure key create --tenant acme --server grpc://host:7800 | perdure login prod",
		ValidArgsFunction: profileNames,
		RunE: func(cmd *cobra.Command, args []string) error {
			all, name, err := o.loginProfile(cmd, args)
			if err != nil {
				return err
			}
			if o.choice.secret, err = o.readToken(cmd.Context(), name, file); err != nil {
				return err
			}
			w, err := o.identify(cmd.Context())
			if err != nil {
				return fmt.Errorf("the key is not stored: %w", err)
			}
			return o.storeLogin(name, all.Named[name].Server, w)
		},
	}
	cmd.Flags().StringVar(&file, "token-file", "", "file that has the key, or - for standard input")
	return cmd
}

// loginProfile finds the profile that a login is for. Only the server of this profile gets the key.
func (o *options) loginProfile(cmd *cobra.Command, args []string) (*profiles, string, error) {
	if len(args) > 0 {
		if err := cmd.Flags().Set("profile", args[0]); err != nil {
			return nil, "", err
		}
	}
	all, err := readProfiles()
	if err != nil {
		return nil, "", err
	}
	if err := o.choose(cmd); err != nil {
		return nil, "", err
	}

	name := o.choice.profile.value
	if name == "" {
		err := fault.New(fault.Invalid, "%s needs a profile, which names the server of the key", cmd.Name())
		return nil, "", fault.WithHint(err, "perdure config set prod --server grpc://host:7800 creates one")
	}
	if all.Named[name].Server == "" {
		return nil, "", fault.New(fault.Invalid, "profile %s has a store and no server, and only a server asks for a key", name)
	}
	return all, name, nil
}

// readToken reads the key from a file, from a terminal without showing it, or from standard input.
func (o *options) readToken(ctx context.Context, name, file string) (string, error) {
	if file != "" && file != "-" {
		if err := checkOwnOnly("the key", file); err != nil {
			return "", err
		}
		f, err := os.Open(file)
		if err != nil {
			return "", fault.New(fault.Invalid, "read the key: %w", err)
		}
		defer f.Close()
		return checkToken(io.ReadAll(io.LimitReader(f, maxToken+1)))
	}

	if tty, ok := o.In.(*os.File); ok && file == "" && term.IsTerminal(tty.Fd()) {
		fmt.Fprintf(o.Err, "Key for profile %s: ", name)
		text, err := readHidden(ctx, tty)
		fmt.Fprintln(o.Err)
		return checkToken(text, err)
	}
	return checkToken(io.ReadAll(io.LimitReader(o.In, maxToken+1)))
}

// readHidden reads a line from a terminal. The terminal does not show what the user types. When the
// user interrupts the command, the terminal shows again what people type.
func readHidden(ctx context.Context, tty *os.File) ([]byte, error) {
	before, err := term.GetState(tty.Fd())
	if err != nil {
		return nil, err
	}
	type line struct {
		text []byte
		err  error
	}
	read := make(chan line, 1)
	go func() {
		text, err := term.ReadPassword(tty.Fd())
		read <- line{text, err}
	}()

	select {
	case l := <-read:
		return l.text, l.err
	case <-ctx.Done():
		// The goroutine still reads: a read of a terminal cannot be interrupted. The process ends.
		return nil, errors.Join(fault.New(fault.Canceled, "login was interrupted; the key is not stored"), term.Restore(tty.Fd(), before))
	}
}

// checkToken returns the key without the space around it. A key must be one word of ASCII, because
// it is sent in a header.
func checkToken(text []byte, err error) (string, error) {
	if err != nil && !errors.Is(err, io.EOF) {
		if fault.KindOf(err) == fault.Canceled {
			return "", err
		}
		return "", fault.New(fault.Invalid, "read the key: %w", err)
	}
	if len(text) > maxToken {
		return "", fault.New(fault.Invalid, "the key is longer than %d bytes", maxToken)
	}
	key := string(bytes.TrimSpace(text))
	if key == "" {
		return "", fault.New(fault.Invalid, "the key is empty")
	}
	if strings.ContainsFunc(key, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return "", fault.New(fault.Invalid, "the key has spaces, line breaks or characters that are not ASCII")
	}
	return key, nil
}

// loginShape is the result of a login in JSON.
type loginShape struct {
	Profile string   `json:"profile"`
	URL     string   `json:"url"`
	Tenant  string   `json:"tenant"`
	Caller  string   `json:"caller,omitempty"`
	Roles   []string `json:"roles,omitempty"`
	Expires string   `json:"expires,omitempty"`
	KeyFile string   `json:"key_file"`
}

// storeLogin stores the key that a server has accepted, and names its file in the profile. It reads
// the profiles again, because they may have changed while a person typed the key.
func (o *options) storeLogin(name, server string, w *whoami) error {
	all, err := readProfiles()
	if err != nil {
		return err
	}
	p, before := all.Named[name], all.loggedIn(name)
	if p.Server != server {
		return fault.New(fault.Conflict, "the key is not stored: the server of profile %s has changed since login asked for the key", name)
	}
	file, err := all.loginFile(name)
	if err != nil {
		return err
	}

	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		return fault.New(fault.Invalid, "store the key: %w", err)
	}
	// writeWhole creates the file with mode 0600.
	err = writeWhole(file, func(f *os.File) error {
		_, err := f.WriteString(o.choice.secret + "\n")
		return err
	})
	if err != nil {
		return fault.New(fault.Invalid, "store the key: %w", err)
	}

	p.KeyFile, p.KeyEnv = file, ""
	if p.Tenant == "" && w.Tenant != model.DefaultTenant {
		p.Tenant = w.Tenant
	}
	all.Named[name] = p
	if err := all.write(); err != nil {
		if !before { // no profile names the file
			err = errors.Join(err, os.Remove(file))
		}
		return err
	}
	return o.printLogin(&loginShape{name, w.URL, w.Tenant, w.Caller, w.Roles, w.Expires, file})
}

func (o *options) printLogin(l *loginShape) error {
	for _, variable := range []string{tokenVariable, tokenFileVariable} {
		if os.Getenv(variable) != "" {
			fmt.Fprintf(o.Err, "$%s is set, and commands use it instead of the stored key.\n", variable)
		}
	}
	if o.structured() {
		return o.json(l)
	}
	text := fmt.Sprintf("logged in: profile %s, tenant %s", l.Profile, l.Tenant)
	if len(l.Roles) > 0 {
		text += ", " + l.Caller + " with role " + strings.Join(l.Roles, ", ")
	}
	_, err := fmt.Fprintln(o.Out, text)
	return err
}

func newLogout(o *options) *cobra.Command {
	return &cobra.Command{
		Annotations: map[string]string{noTarget: "yes"},
		Use:         "logout [profile]", Short: "Remove the key that login has stored for a profile", Args: cobra.MaximumNArgs(1),
		Long: `Remove the key that perdure login has stored for a profile, from the disk and from the profile. Without an argument it is the profile that commands use.

The server still accepts the key: perdure key revoke ends it.`,
		Example: "  perdure logout prod", ValidArgsFunction: profileNames,
		RunE: func(cmd *cobra.Command, args []string) error {
			all, name, err := o.loginProfile(cmd, args)
			if err != nil {
				return err
			}

			p := all.Named[name]
			switch {
			case p.KeyFile == "" && p.KeyEnv == "":
				return fault.New(fault.NotFound, "profile %s has no key", name)
			case !all.loggedIn(name):
				err := fault.New(fault.Invalid, "profile %s has its key in %s, which login has not stored", name, keyPlace(&p))
				return fault.WithHint(err, "perdure config set %s --key-file '' --key-env '' removes it from the profile", name)
			}
			if err := all.forgetLogin(name); err != nil {
				return err
			}
			if err := all.write(); err != nil {
				return err
			}
			return o.printProfile(all, name, "logged out:")
		},
	}
}

// keyPlace says where a profile has its key.
func keyPlace(p *profile) string {
	if p.KeyEnv != "" {
		return "$" + p.KeyEnv
	}
	return p.KeyFile
}

// loginFile returns the file in which login stores the key of a profile. Some file systems do not
// distinguish upper and lower case, but the names of profiles do.
func (all *profiles) loginFile(name string) (string, error) {
	if all.path == "" {
		return "", fault.New(fault.Invalid, "this user has no directory for settings: name a file in $%s", profilesVariable)
	}
	path, err := filepath.Abs(all.path)
	if err != nil {
		return "", err
	}
	plain := strings.ToLower(name)
	if plain != name {
		plain = fmt.Sprintf("%s.%x", plain, name)
	}
	return filepath.Join(filepath.Dir(path), "keys", plain+".key"), nil
}

// loggedIn reports whether login has stored the key of a profile.
func (all *profiles) loggedIn(name string) bool {
	file, err := all.loginFile(name)
	return err == nil && all.Named[name].KeyFile == file
}

// forgetLogin removes the key that login has stored for a profile, if there is one. The caller
// writes the profiles.
func (all *profiles) forgetLogin(name string) error {
	if !all.loggedIn(name) {
		return nil
	}
	p := all.Named[name]
	if err := os.Remove(p.KeyFile); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fault.New(fault.Invalid, "remove the key: %w", err)
	}
	p.KeyFile = ""
	all.Named[name] = p
	return nil
}
