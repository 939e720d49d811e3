// Package cli implements the command line: perdure <noun> <verb>. A command reads its flags, calls
// the API or the store, and prints the result. It contains no rules of the engine. The output is a
// table for people, or JSON for programs with -o json. Errors go to standard error as a sentence,
// and the exit code tells their kind.
package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"slices"
	"strings"
	"time"

	"charm.land/fang/v2"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"google.golang.org/grpc"

	"github.com/perdure/perdure/internal/api"
	"github.com/perdure/perdure/internal/bench"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/node"
	"github.com/perdure/perdure/internal/remote"
	"github.com/perdure/perdure/internal/store"
)

// Streams are the input and the outputs of a command.
type Streams struct {
	In       io.Reader
	Out, Err io.Writer
	// Width is the number of columns of the terminal that Out writes to. It is 0 if Out is not a
	// terminal. ErrWidth is the same for Err.
	Width, ErrWidth int
}

// session is an open store, or a connection to a server.
type session interface {
	Backend() api.Backend
	// Admin has the calls that concern all tenants.
	Admin() api.Admin
	Store() store.Store
	Close() error
}

// options are the flags that every command has.
type options struct {
	Streams
	store, server, profile string
	schema, databases      string
	tenant                 string
	// choice says where the values above come from.
	choice *choice
	// tenantGiven is true if the user has named the tenant. Otherwise a server uses the tenant of
	// the key.
	tenantGiven bool

	output  string
	verbose bool

	wide, full bool

	// fieldList is the text of --fields. fields is what it selects; nil for everything.
	fieldList string
	fields    *fieldChoice

	machine machine
	// every is how often bulk work shows its progress; 0 for lineEvery or drawEvery. Tests set it.
	every time.Duration
	// wrap changes the store of a server, for tests.
	wrap func(store.Store) store.Store
	// services adds gRPC services to a server, for tests.
	services func(grpc.ServiceRegistrar)
	// connect opens a store, or connects to a server. Tests replace it by prepared answers.
	connect func(ctx context.Context, c node.Config, in scope) (session, error)
	// connectInside opens the store itself. It never connects to the program that has the store
	// open.
	connectInside func(ctx context.Context, c node.Config) (session, error)
}

// scope says in which tenant a command connects.
type scope struct {
	tenant string
	chosen string // tenant that the command asks a server for; empty for the tenant of the key
	// any says that the key may belong to any tenant.
	any bool
}

// own is the scope of a command that concerns one tenant.
func (o *options) own() scope {
	in := scope{tenant: o.tenant}
	if o.tenantGiven {
		in.chosen = o.tenant
	}
	return in
}

// connectIn opens the store, or connects to a server. It fails if the key belongs to a tenant in
// which the command does not act.
func (o *options) connectIn(ctx context.Context, c node.Config, in scope) (session, error) {
	s, err := o.connectTo(ctx, c, in)
	if d, ok := s.(dialed); ok && d.b.Tenant() != in.tenant && !in.any {
		err := fault.New(fault.Denied, "the key belongs to tenant %s, and the command is for tenant %s", d.b.Tenant(), in.tenant)
		return nil, errors.Join(fault.WithHint(err, "give --tenant %s, or set $PERDURE_TENANT", d.b.Tenant()), d.Close())
	}
	return s, err
}

// connectTo opens the store of a configuration, or connects to a server. A program that listens on
// a socket serves only the default tenant there.
func (o *options) connectTo(ctx context.Context, c node.Config, in scope) (session, error) {
	if remote.IsURL(c.URL) {
		return dial(ctx, c, o.choice, in.chosen)
	}
	if s, ok := dialSocket(ctx, c); ok && in.tenant == model.DefaultTenant {
		return s, nil
	}
	return openStore(ctx, c)
}

// openStore opens a store in this process.
func openStore(ctx context.Context, c node.Config) (session, error) {
	c.Caller = storeCaller()
	n, err := node.Open(ctx, c)
	if err != nil {
		return nil, fmt.Errorf("open the store: %w", err)
	}
	return opened{n}, nil
}

// opened is a node that the command has opened.
type opened struct{ *node.Node }

// Admin has the calls that concern all tenants.
func (o opened) Admin() api.Admin { return o.Node.Admin(model.DefaultTenant) }

// Main runs the command line and returns the exit code.
func Main(ctx context.Context, args []string, s Streams) int {
	if bench.IsChild() { // a measurement runs in its own process
		err := bench.Child(ctx, nil)
		if err != nil {
			fmt.Fprintln(s.Err, err)
		}
		return exitCode(err)
	}
	o := &options{Streams: s, connectInside: openStore, machine: thisMachine()}
	o.connect = o.connectIn
	return o.run(ctx, args)
}

// run runs one command and returns the exit code.
func (o *options) run(ctx context.Context, args []string) int {
	root := newRoot(o)
	root.SetArgs(args)
	root.SetIn(o.In)
	root.SetOut(o.Out)
	root.SetErr(o.Err)
	began := false
	o.prepare(root, &began)
	err := fang.Execute(ctx, root, fang.WithVersion(Version()), fang.WithoutManpage(), fang.WithNotifySignal(os.Interrupt), fang.WithErrorHandler(func(w io.Writer, styles fang.Styles, err error) {
		complain(w, styles, explainMistake(root, err), !began)
	}))
	if err != nil && !began && fault.KindOf(err) == fault.Internal {
		// The library reports errors of flags and arguments before the command runs.
		err = fault.New(fault.Invalid, "%w", err)
	}
	return exitCode(err)
}

// prepare changes a command and the commands below it. Every command records that it has started. A
// command that only groups other commands rejects an unknown verb, because a script with a misspelt
// verb must fail. Completions use the store or the server that the command would use.
func (o *options) prepare(cmd *cobra.Command, began *bool) {
	cmd.Long = joinLines(cmd.Long)
	explainArguments(cmd)
	if run := cmd.RunE; run != nil {
		cmd.RunE = func(cmd *cobra.Command, args []string) error {
			*began = true
			return run(cmd, args)
		}
	} else if cmd.HasParent() && cmd.HasSubCommands() {
		cmd.RunE = func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				return unknownCommand(cmd, args[0])
			}
			return cmd.Help()
		}
	}

	if complete := cmd.ValidArgsFunction; complete != nil {
		cmd.ValidArgsFunction = func(cmd *cobra.Command, args []string, begin string) ([]string, cobra.ShellCompDirective) {
			if err := o.choose(cmd); err != nil {
				return nil, cobra.ShellCompDirectiveError
			}
			return complete(cmd, args, begin)
		}
	}

	for _, c := range cmd.Commands() {
		o.prepare(c, began)
	}
}

// joinLines puts each paragraph of a text on one line. The library wraps lines at the width of the
// terminal, and would otherwise keep the line breaks of the source as well. Indented paragraphs
// stay as they are.
func joinLines(text string) string {
	paragraphs := strings.Split(text, "\n\n")
	for i, p := range paragraphs {
		if !strings.HasPrefix(p, " ") {
			paragraphs[i] = strings.ReplaceAll(p, "\n", " ")
		}
	}
	return strings.Join(paragraphs, "\n\n")
}

// complain prints an error as a sentence that ends with a period or a question mark, and leaves its
// first word as it is. The error handler of the library would capitalise the first word, which is
// often the name of the subject.
func complain(w io.Writer, styles fang.Styles, err error, usage bool) {
	text := err.Error()
	if !strings.HasSuffix(text, "?") {
		text += "."
	}
	if usage && fault.KindOf(err) == fault.Internal {
		text += "\nTry --help for usage."
	}
	fmt.Fprintln(w, styles.ErrorHeader.String())
	fmt.Fprintln(w, styles.ErrorText.UnsetTransform().UnsetWidth().Render(text))
}

// defaultStore is the file that the first program of the README opens.
const defaultStore = "file:perdure.db"

// hideDefault makes the help of a flag show the name of an environment variable instead of its
// value. The value is the default of the flag, and may have a password.
func hideDefault(flags *pflag.FlagSet, flag, variable string) {
	if os.Getenv(variable) != "" {
		flags.Lookup(flag).DefValue = "$" + variable
	}
}

func newRoot(o *options) *cobra.Command {
	root := &cobra.Command{
		Use:   "perdure",
		Short: "Durable workflows on your own store",
		Long:  "perdure inspects and operates a Perdure store: a file or a PostgreSQL database.\n\nExit codes: " + exitCodeList() + ".",
		Example: `  perdure workflow list
  perdure workflow explain greet/hello-1 --store file:perdure.db
  perdure doctor --store postgres://localhost/app`,
		SilenceUsage: true, DisableSuggestions: true, // explainMistake makes better suggestions
	}
	root.SetFlagErrorFunc(explainFlag)

	def := cmp.Or(os.Getenv("PERDURE_STORE"), os.Getenv(serverVariable), defaultStore)
	root.PersistentFlags().StringVar(&o.store, "store", def, "store: file:<path> or postgres://… ($PERDURE_STORE)")
	root.PersistentFlags().StringVar(&o.server, "server", "", "server to use instead of a store: grpc://host:7800 ($"+serverVariable+")")
	root.PersistentFlags().StringVar(&o.profile, "profile", "", "profile of perdure config to use ($"+profileVariable+")")
	root.PersistentFlags().StringVar(&o.schema, "schema", "perdure", "schema in PostgreSQL")
	root.PersistentFlags().StringVar(&o.databases, "databases", os.Getenv(databasesVariable), "PostgreSQL databases that hold shard groups of the store: eu=postgres://…, with spaces between them ($"+databasesVariable+")")
	root.PersistentFlags().StringVar(&o.tenant, "tenant", cmp.Or(os.Getenv("PERDURE_TENANT"), model.DefaultTenant), "tenant to look at and operate ($PERDURE_TENANT)")
	hideDefault(root.PersistentFlags(), "store", "PERDURE_STORE")
	hideDefault(root.PersistentFlags(), "databases", databasesVariable)
	root.PersistentFlags().StringVarP(&o.output, "output", "o", "table", "output format: "+formatList())
	root.PersistentFlags().BoolVar(&o.wide, "wide", false, "show all columns at full width, even if they do not fit the terminal")
	root.PersistentFlags().BoolVar(&o.full, "full", false, "show long values in full; implies --wide")
	root.PersistentFlags().BoolVarP(&o.verbose, "verbose", "v", false, "log what the command does on the store")

	root.PersistentPreRunE = func(cmd *cobra.Command, _ []string) error {
		if !slices.Contains(formats, o.output) {
			return fault.New(fault.Invalid, "--output is %q, must be %s", o.output, formatList())
		}
		if err := o.chooseFields(cmd); err != nil {
			return err
		}
		if cmd.Annotations[noTarget] != "" {
			return nil
		}
		if err := o.choose(cmd); err != nil {
			return err
		}
		if !model.ValidTenant(o.tenant) {
			return fault.New(fault.Invalid, "--tenant is %q, must be letters, digits, dots, dashes and underscores, at most %d", o.tenant, model.MaxTenant)
		}
		return nil
	}

	root.AddCommand(newWorkflow(o), newBatch(o), newSchedule(o), newMigrate(o), newDoctor(o), newServe(o), newDev(o), newBench(o), newVersion(o))
	root.AddCommand(newTask(o), newQueue(o), newDlq(o), newLimit(o), newBreaker(o), newWorker(o), newStress(o), newEntity(o), newLock(o))
	root.AddCommand(newWorkflowExport(o), newDeployCheck(o), newWatch(o), newTenant(o), newKey(o), newAuth(o), newNode(o), newCluster(o), newSetting(o), newConfig(o), newAudit(o), newPromise(o), newWhoami(o), newLogin(o), newLogout(o), newReplayReport(o))
	addAliases(root)
	o.addFields(root)
	o.addCompletions(root)
	return root
}

func (o *options) log() *slog.Logger {
	if !o.verbose {
		return slog.New(slog.DiscardHandler)
	}
	return slog.New(slog.NewTextHandler(o.Err, nil))
}

// look opens the store, or connects to a server, for reading. It does not disturb a process that
// has the store open.
func (o *options) look(ctx context.Context) (session, error) { return o.lookIn(ctx, o.own()) }

// lookIn is like look, but the caller chooses the scope.
func (o *options) lookIn(ctx context.Context, in scope) (session, error) {
	return o.connect(ctx, node.Config{URL: o.store, Schema: o.schema, Databases: o.databaseURLs(), ReadOnly: true, Log: o.log(), Version: Version()}, in)
}

// lookInside opens the store itself for reading, for commands that need more than the API.
func (o *options) lookInside(ctx context.Context) (session, error) {
	c := node.Config{URL: o.store, Schema: o.schema, Databases: o.databaseURLs(), ReadOnly: true, Log: o.log(), Version: Version()}
	if remote.IsURL(c.URL) {
		return nil, fault.WithHint(fault.New(fault.Invalid, "%s is a server, and this command looks into the store itself", c.URL), "give --store with the URL of the store")
	}
	return o.connectInside(ctx, c)
}
