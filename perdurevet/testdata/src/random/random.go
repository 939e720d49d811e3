// Package random draws in workflow code.
package random

import (
	crand "crypto/rand"
	"math/rand/v2"

	"github.com/google/uuid"

	"github.com/perdure/perdure"
)

func wrongRand(ctx perdure.WorkflowCtx, n int) (int, error) {
	return rand.IntN(n), nil // want `rand\.IntN in workflow code: it differs on replay; use ctx\.Rand\(\)`
}

func wrongShuffle(ctx perdure.WorkflowCtx, in []string) ([]string, error) {
	rand.Shuffle(len(in), func(i, j int) { in[i], in[j] = in[j], in[i] }) // want `rand\.Shuffle in workflow code`
	return in, nil
}

func wrongCrypto(ctx perdure.WorkflowCtx, _ int) (string, error) {
	return crand.Text(), nil // want `rand\.Text in workflow code`
}

func wrongUUID(ctx perdure.WorkflowCtx, _ int) (string, error) {
	return uuid.NewString(), nil // want `uuid\.NewString in workflow code: it differs on replay; use ctx\.UUID\(\)`
}

// ---- right

func right(ctx perdure.WorkflowCtx, n int) (string, error) {
	if ctx.Rand().IntN(n) == 0 {
		return "", nil
	}
	return ctx.UUID(), nil
}

func rightSeeded(ctx perdure.WorkflowCtx, seed uint64) (int, error) {
	return rand.New(rand.NewPCG(seed, seed)).IntN(10), nil
}

func rightParsed(ctx perdure.WorkflowCtx, s string) (uuid.UUID, error) { return uuid.Parse(s) }
