package embedded

import (
	"context"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/deploy"
)

// replayTimeout is how long the replay of one history may take: code that blocks never comes to an
// end.
const replayTimeout = time.Minute

// AnswerDeployCheck lets `perdure deploy-check -- ./program` replay stored histories with the code
// of this program. Call it first in main, with all definitions. It does nothing in a process that
// was started otherwise. In one that the command has started it replays what it is given, executes
// no step, opens no store, and ends the process.
func AnswerDeployCheck(defs ...perdure.Definition) { Config{}.AnswerDeployCheck(defs...) }

// AnswerDeployCheck is AnswerDeployCheck with the payload settings and the version of the program.
func (c Config) AnswerDeployCheck(defs ...perdure.Definition) {
	if !deploy.Asked() {
		return
	}
	out := os.Stdout
	os.Stdout = os.Stderr // what code prints must not stand between the verdicts

	err := deploy.Serve(os.Stdin, out, c.Version, func(history io.Reader) error {
		ctx, cancel := context.WithTimeout(context.Background(), replayTimeout)
		defer cancel()
		return c.Replay(ctx, history, defs...)
	})
	if err != nil {
		fmt.Fprintln(os.Stderr, "deploy-check:", err)
		os.Exit(1)
	}
	os.Exit(0)
}
