package deploy

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/perdure/perdure/internal/fault"
)

// Env is the environment variable that tells a program that it was started to replay histories.
const Env = "PERDURE_DEPLOY_CHECK"

// IsReplayProcess reports whether this process was started to replay histories. Such a process must
// not open a store.
func IsReplayProcess() bool { return os.Getenv(Env) != "" }

// greeting starts the first line that the program sends. The version of the build follows it in the
// same line. The number in the greeting grows when the protocol changes.
const greeting = "perdure deploy-check 1 "

// MaxHistory is the maximum size of a history in bytes, in the form in which the command sends it.
const MaxHistory = 256 << 20

// Verdict is the result of a replay.
type Verdict struct {
	Kind string `json:"kind,omitempty"` // the kind of the error; empty if the code fits
	Text string `json:"text,omitempty"`
	// Event is the position of the event that does not fit the code; 0 if there is none. Programs
	// of older builds do not send it.
	Event int64 `json:"event,omitempty"`
}

// Serve replays histories with the code of a build until the command has no histories left. It
// sends the version of the build with the greeting.
func Serve(in io.Reader, out io.Writer, version string, replay func(io.Reader) error) error {
	hello, err := json.Marshal(version)
	if err != nil {
		return err
	}
	if _, err := fmt.Fprintf(out, "%s%s\n", greeting, hello); err != nil {
		return err
	}

	r := bufio.NewReader(in)
	for {
		data, err := readFrame(r)
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		}
		var v Verdict
		if err := replay(bytes.NewReader(data)); err != nil {
			v = Verdict{Kind: fault.KindOf(err).String(), Text: err.Error()}
			var misfit interface{ Event() int64 }
			if errors.As(err, &misfit) {
				v.Event = misfit.Event()
			}
		}
		if err := json.NewEncoder(out).Encode(v); err != nil {
			return err
		}
	}
}

// readFrame reads one history; io.EOF after the last one.
func readFrame(r io.Reader) ([]byte, error) {
	var size uint32
	if err := binary.Read(r, binary.BigEndian, &size); err != nil {
		return nil, err
	}
	if size > MaxHistory {
		return nil, fault.New(fault.Invalid, "the history has %d bytes; the maximum is %d", size, MaxHistory)
	}
	data := make([]byte, size)
	if _, err := io.ReadFull(r, data); err != nil {
		return nil, fmt.Errorf("a history is cut off: %w", err)
	}
	return data, nil
}

// writeFrame sends one history.
func writeFrame(w io.Writer, data []byte) error {
	size := uint32(len(data)) //nolint:gosec // its caller has compared it with MaxHistory
	if err := binary.Write(w, binary.BigEndian, size); err != nil {
		return err
	}
	_, err := w.Write(data)
	return err
}
