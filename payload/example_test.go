package payload_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/embedded"
	"github.com/perdure/perdure/payload"
	"github.com/perdure/perdure/payload/zstd"
)

type order struct {
	Card string
	Note string
}

var shop = perdure.NewWorkflow("shop", func(ctx perdure.WorkflowCtx, o order) (string, error) {
	return perdure.Do(ctx, "charge", func(context.Context) (string, error) { return "charged " + o.Card[len(o.Card)-4:], nil })
})

// This app compresses and encrypts payloads, and keeps payloads that are still large outside the
// database.
func Example() {
	folder, err := os.MkdirTemp("", "blobs")
	if err != nil {
		panic(err)
	}
	defer func() { _ = os.RemoveAll(folder) }()
	// A program uses 32 random bytes for each of these, from its store of secrets.
	key, root := bytes.Repeat([]byte{1}, 32), bytes.Repeat([]byte{2}, 32)
	keys, err := payload.NewKeys("2026-11", map[string][]byte{"2026-11": key}, root)
	if err != nil {
		panic(err)
	}

	app, err := embedded.Config{Payloads: payload.Codec{
		Format: payload.Msgpack,
		Chain: []payload.Transform{
			zstd.Compress(1 << 10),
			payload.Encrypt(keys),
			payload.Offload(payload.Dir(folder), 64<<10),
		},
	}}.Open(context.Background(), "memory:", shop)
	if err != nil {
		panic(err)
	}
	defer app.Close()
	c := app.With(context.Background())
	in := order{Card: "4111-1111-1111-1111", Note: strings.Repeat("please ring ", 1000)}
	out, err := shop.Run(c, in, perdure.RawKey("order-42"))
	fmt.Println(out, err)

	for e, err := range app.Histories().Events(context.Background(), shop.Execution(perdure.RawKey("order-42"))) {
		if err != nil {
			panic(err)
		}
		if e.Kind == "step_completed" {
			fmt.Printf("%s: %s, stored as %s\n", e.Name, e.Output, strings.Fields(e.OutputIs)[3])
		}
	}
	// Output:
	// charged 1111 <nil>
	// charge: "charged 1111", stored as msgpack+aes-gcm
}

// To rotate keys, add the new key and make it the current key. Payloads that were encrypted with
// the old key stay readable as long as the old key is in the ring.
func ExampleNewKeys() {
	old, fresh, root := bytes.Repeat([]byte{1}, 32), bytes.Repeat([]byte{3}, 32), bytes.Repeat([]byte{2}, 32)
	before, err := payload.NewKeys("2026-11", map[string][]byte{"2026-11": old}, root)
	if err != nil {
		panic(err)
	}
	after, err := payload.NewKeys("2027-01", map[string][]byte{"2026-11": old, "2027-01": fresh}, root)
	if err != nil {
		panic(err)
	}
	ctx, meta := context.Background(), payload.Meta{Encoding: "json"}
	sealed, _, err := payload.Encrypt(before).Seal(ctx, meta, []byte(`"secret"`))
	if err != nil {
		panic(err)
	}
	opened, err := payload.Encrypt(after).Open(ctx, meta, sealed)
	fmt.Printf("%s %v\n", opened, err)
	fmt.Println(after)
	// Output:
	// "secret" <nil>
	// keys [2026-11 2027-01], current 2027-01
}

// A sweep removes blobs without a reference. It removes only blobs that are so old that no running
// commit can still refer to them.
func ExampleOffload() {
	folder, err := os.MkdirTemp("", "blobs")
	if err != nil {
		panic(err)
	}
	defer func() { _ = os.RemoveAll(folder) }()
	app, err := embedded.Config{Payloads: payload.Codec{
		Chain: []payload.Transform{payload.Offload(payload.Dir(folder), 1<<10)},
	}}.Open(context.Background(), "memory:", shop)
	if err != nil {
		panic(err)
	}
	defer app.Close()
	_, err = shop.Run(app.With(context.Background()), order{Card: "1111", Note: strings.Repeat("x", 5000)}, perdure.RawKey("order-42"))
	if err != nil {
		panic(err)
	}
	removed, err := app.SweepPayloads(context.Background(), 24*time.Hour)
	fmt.Println("removed", removed, err)
	// Output: removed 0 <nil>
}
