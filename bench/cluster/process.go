package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"time"
)

// settings configure one process.
type settings struct {
	URL, Schema string
	NoLink      bool
	// CrashAt is the step of the long workflow in which the process kills itself; 0 for none.
	CrashAt int
}

// order asks a process to do something.
type order struct {
	ID    int
	Do    string // the name of a handler
	Input json.RawMessage
}

// reply answers the order with the same ID. The reply with ID 0 says that the process is ready.
type reply struct {
	ID     int
	Output json.RawMessage `json:",omitempty"`
	Error  string          `json:",omitempty"`
}

// process is a process that this command has started.
type process struct {
	begun time.Time // when it was started
	cmd   *exec.Cmd
	in    io.WriteCloser
	ready chan reply
	ended chan struct{} // closed when the process has closed its standard output
	calls sync.WaitGroup

	mu      sync.Mutex // also for writes to in
	last    int        // ID of the last order
	waiting map[int]chan reply
	gone    bool // the process accepts no orders
}

// errGone is the error of an order that a process has not answered before it ended.
var errGone = errors.New("the process has ended")

// launch starts a process. The process opens its app, then reads orders.
func launch(s settings) (*process, error) {
	text, err := json.Marshal(s)
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(os.Args[0]) //nolint:gosec // this program
	cmd.Env = append(os.Environ(), childVariable+"="+string(text))
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}

	p := &process{begun: time.Now(), cmd: cmd, in: in, ready: make(chan reply, 1), ended: make(chan struct{})}
	p.waiting = map[int]chan reply{0: p.ready}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	go p.read(out)
	return p, nil
}

// read passes the replies of the process on to the callers that wait for them.
func (p *process) read(out io.Reader) {
	defer close(p.ended)
	for dec := json.NewDecoder(out); ; {
		var r reply
		if err := dec.Decode(&r); err != nil {
			break
		}
		p.mu.Lock()
		to := p.waiting[r.ID]
		delete(p.waiting, r.ID)
		p.mu.Unlock()
		to <- r
	}

	p.mu.Lock()
	defer p.mu.Unlock()
	p.gone = true
	for _, to := range p.waiting {
		close(to)
	}
}

// awaitReady waits until the process has opened its app.
func (p *process) awaitReady() error {
	_, err := await(p.ready)
	return err
}

// send sends an order, and returns the channel for the reply.
func (p *process) send(do string, input any) (chan reply, error) {
	text, err := json.Marshal(input)
	if err != nil {
		return nil, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.gone {
		return nil, errGone
	}
	p.last++
	to := make(chan reply, 1)
	p.waiting[p.last] = to
	// If the process ends during this write, the reader closes the channel.
	_ = json.NewEncoder(p.in).Encode(order{ID: p.last, Do: do, Input: text})
	return to, nil
}

// await waits for a reply.
func await(from chan reply) (json.RawMessage, error) {
	r, ok := <-from
	switch {
	case !ok:
		return nil, errGone
	case r.Error != "":
		return nil, errors.New(r.Error)
	}
	return r.Output, nil
}

// ask sends an order to a process and waits for the output.
func ask[O any](p *process, do string, input any) (out O, err error) {
	to, err := p.send(do, input)
	if err != nil {
		return out, err
	}
	text, err := await(to)
	if err != nil {
		return out, err
	}
	return out, json.Unmarshal(text, &out)
}

// askAll sends an order to several processes at the same time, and waits for all outputs. input
// returns the input for the process with the given number.
func askAll[O any](all []*process, do string, input func(i int) any) ([]O, error) {
	outs, errs := make([]O, len(all)), make([]error, len(all))
	var wg sync.WaitGroup
	for i, p := range all {
		wg.Go(func() { outs[i], errs[i] = ask[O](p, do, input(i)) })
	}
	wg.Wait()
	return outs, errors.Join(errs...)
}

// stop lets the process close its app, and waits until the process has ended.
func (p *process) stop() error {
	_ = p.in.Close() // the process closes its app when its input ends
	<-p.ended
	if err := p.cmd.Wait(); err != nil {
		return fmt.Errorf("process %d: %w", p.cmd.Process.Pid, err)
	}
	return nil
}

// kill ends the process with kill -9, and waits until the process has ended. It does nothing to a
// process that has ended.
func (p *process) kill() {
	_ = p.cmd.Process.Kill()
	p.reap()
}

// reap waits until the process has ended. Other processes see a dead process only after that.
func (p *process) reap() {
	<-p.ended
	_ = p.cmd.Wait()
}
