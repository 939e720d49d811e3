package crashwalk_test

import (
	"bytes"
	"context"
	"fmt"
	"iter"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/codec"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/payload"
)

// vault is a store of blobs that outlives processes.
type vault struct {
	mu    sync.Mutex
	blobs map[string][]byte
}

func (v *vault) Put(_ context.Context, key string, data []byte) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	if _, ok := v.blobs[key]; ok {
		return fmt.Errorf("blob %s was put twice", key)
	}
	v.blobs[key] = bytes.Clone(data)
	return nil
}

func (v *vault) Get(_ context.Context, key string) ([]byte, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	data, ok := v.blobs[key]
	if !ok {
		return nil, payload.ErrNotFound
	}
	return bytes.Clone(data), nil
}

func (v *vault) Delete(_ context.Context, key string) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	delete(v.blobs, key)
	return nil
}

func (v *vault) List(_ context.Context, prefix string) iter.Seq2[payload.Blob, error] {
	return func(yield func(payload.Blob, error) bool) {
		v.mu.Lock()
		defer v.mu.Unlock()
		for key := range v.blobs {
			if strings.HasPrefix(key, prefix) && !yield(payload.Blob{Key: key, Stored: time.Now()}, nil) {
				return
			}
		}
	}
}

// vaultCodec returns a codec that encrypts everything and offloads large payloads.
func vaultCodec(v *vault) payload.Codec {
	keys, err := payload.NewKeys("k1", map[string][]byte{"k1": bytes.Repeat([]byte("k"), 32)}, bytes.Repeat([]byte("r"), 32))
	if err != nil {
		panic(err)
	}
	return payload.Codec{Chain: []payload.Transform{payload.Encrypt(keys), payload.Offload(v, 150)}}
}

// payloads returns the codec of the processes.
func (w *world) payloads() payload.Codec {
	if w.s.vaulted {
		return vaultCodec(&w.vault)
	}
	return payload.Codec{}
}

// reveal decodes the payloads of a history, so that the test can compare them. Every payload must
// be readable after every fault.
func (w *world) reveal(h *history) error {
	if !w.s.vaulted {
		return nil
	}
	c, err := codec.New(context.Background(), codec.Config{Settings: vaultCodec(&w.vault), Cluster: "walk"})
	if err != nil {
		return err
	}

	ps := []*model.Payload{&h.row.Start.Input, &h.row.Outcome.Output}
	h.events = slices.Clone(h.events)
	for i := range h.events {
		ps = append(ps, &h.events[i].Input, &h.events[i].Output)
	}

	for _, p := range ps {
		if p.Encoding == model.JSON {
			if len(p.Data) > 0 {
				return wrong("a payload of %s is not encrypted: %s", h.row.Start.Address, p.Data)
			}
			continue
		}
		if *p, err = c.Open(context.Background(), *p); err != nil {
			return wrong("a payload of %s is stored and cannot be read: %v", h.row.Start.Address, err)
		}
	}

	return nil
}

// cargo is a payload of any size.
type cargo struct {
	Text string
	Left int
}

var (
	freight = perdure.DeclareWorkflow[cargo, string]("freight")
	feeder  = perdure.DeclareWorkflow[cargo, cargo]("feeder")
	hoist   = perdure.DeclareActivity[cargo, cargo]("hoist")
	cargos  = perdure.NewSignal[cargo]("cargo")
)

// payloadScenarios are about encrypted and offloaded payloads: every stored reference has its blob,
// even if a process dies between the two writes. The engine also recognises a repeated start or
// step, although the encrypted input has different bytes each time.
func payloadScenarios() []*scenario {
	large := cargo{Text: strings.Repeat("heavy", 60)}
	return []*scenario{{
		name:    "encrypted and offloaded",
		vaulted: true,
		bodies:  map[string]int{"hoist": 2},
		stages: alone(func(w *world) perdure.Group {
			return perdure.Group{
				hoist.Bind(func(_ context.Context, c cargo) (cargo, error) {
					w.recordBody("hoist")
					c.Left++
					return c, nil
				}),
				feeder.Bind(func(ctx perdure.WorkflowCtx, c cargo) (cargo, error) {
					got, err := cargos.Receive(ctx)
					if err != nil {
						return c, err
					}
					return hoist.Run(ctx, got)
				}),
				freight.Bind(func(ctx perdure.WorkflowCtx, c cargo) (string, error) {
					if c.Left == 1 {
						return fmt.Sprint(len(c.Text), c.Left), nil
					}
					up, err := hoist.Run(ctx, c)
					if err != nil {
						return "", err
					}

					child, err := feeder.Start(ctx, c, perdure.RawKey("f"))
					if err != nil {
						return "", err
					}
					if err := cargos.Send(ctx, child, up); err != nil {
						return "", err
					}

					back, err := child.Result(ctx)
					if err != nil {
						return "", err
					}
					back.Left -= 1

					return "", freight.ContinueAsNew(back)
				}),
			}
		}, func(d *driver) error {
			x, err := start(d, freight, large, "k")
			if err != nil {
				return err
			}
			return inOrder(
				func() error { return result(d, x, "300 1") },
				func() error { // attaches to the existing execution
					_, err := start(d, freight, large, "k")
					return err
				},
			)
		}),
		check: func(w *world, h *histories) error {
			if n := len(h.of(freight.Execution(perdure.RawKey("k")).Ref)); n != 2 {
				return wrong("%d runs, want 2", n)
			}
			if len(w.vault.blobs) < 6 {
				return wrong("only %d blobs", len(w.vault.blobs))
			}
			return nil
		},
	}}
}
