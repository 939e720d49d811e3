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

// replayTimeout bounds the replay of one history, because code that blocks never ends.
const replayTimeout = time.Minute

// AnswerDeployCheck lets `perdure deploy-check -- ./program` replay stored histories with the code
// of this program. Call it first in main, with all definitions. In a process that the command
// started, AnswerDeployCheck replays the histories that the command sends, and ends the process. It
// executes no step and opens no store. In any other process it does nothing.
func AnswerDeployCheck(defs ...perdure.Definition) { Config{}.AnswerDeployCheck(defs...) }

// AnswerDeployCheck works like the function of that name, with the payload settings and the version
// of the program.
func (c Config) AnswerDeployCheck(defs ...perdure.Definition) {
	if !deploy.IsReplayProcess() {
		return
	}
	out := os.Stdout
	os.Stdout = os.Stderr // the output of user code must not mix with the verdicts

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
