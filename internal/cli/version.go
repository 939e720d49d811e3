package cli

import (
	"cmp"
	"fmt"
	"maps"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/perdure/perdure/internal/node"
)

// Version returns the version of this build, as the module system knows it.
func Version() string { return buildOf(debug.ReadBuildInfo()).Version }

// build describes this build, for programs.
type build struct {
	Version  string         `json:"version"`
	Commit   string         `json:"commit,omitempty"`
	Modified bool           `json:"modified,omitempty"`
	Go       string         `json:"go"`
	Platform string         `json:"platform"`
	Schemas  map[string]int `json:"schemas"`
}

// buildOf reads the build information that the Go toolchain has written into the program.
func buildOf(info *debug.BuildInfo, ok bool) build {
	b := build{Version: "(devel)", Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH}
	if !ok {
		return b
	}

	b.Version = cmp.Or(info.Main.Version, b.Version)
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			b.Commit = s.Value
		case "vcs.modified":
			b.Modified = s.Value == "true"
		}
	}
	return b
}

func newVersion(o *options) *cobra.Command {
	return &cobra.Command{
		Use: "version", Short: "Print the version of this build and of the schemas that it knows", Args: cobra.NoArgs,
		Example: "  perdure version\n  perdure version -o json",
		RunE: func(*cobra.Command, []string) error {
			b := buildOf(debug.ReadBuildInfo())
			var err error
			if b.Schemas, err = node.Schemas(); err != nil {
				return err
			}
			return o.printBuild(&b)
		},
	}
}

func (o *options) printBuild(b *build) error {
	if o.structured() {
		return o.json(b)
	}

	commit := dash(b.Commit)
	if b.Modified {
		commit += " with changes"
	}
	var schemas []string
	for _, kind := range slices.Sorted(maps.Keys(b.Schemas)) {
		schemas = append(schemas, kind+" "+strconv.Itoa(b.Schemas[kind]))
	}
	return o.table("", [][]string{
		{"Perdure", b.Version},
		{"Commit", commit},
		{"Go", fmt.Sprintf("%s, %s", b.Go, b.Platform)},
		{"Schemas", strings.Join(schemas, ", ")},
	})
}
