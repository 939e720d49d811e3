// Package maporder lets the order of a map reach the journal.
package maporder

import (
	"context"
	"maps"
	"slices"
	"sort"
	"sync"

	"github.com/perdure/perdure"
)

var charge = perdure.DeclareActivity[string, int]("charge")

func wrongCall(ctx perdure.WorkflowCtx, in map[string]int) (int, error) {
	for k := range in { // want `durable call charge\.Run in the order of a map, which differs on replay; range over slices\.Sorted\(maps\.Keys\(m\)\) instead`
		if _, err := charge.Run(ctx, k); err != nil {
			return 0, err
		}
	}
	return 0, nil
}

func wrongKeys(ctx perdure.WorkflowCtx, in map[string]int) (int, error) {
	for k := range maps.Keys(in) { // want `durable call charge\.Run in the order of a map`
		if _, err := charge.Run(ctx, k); err != nil {
			return 0, err
		}
	}
	return 0, nil
}

func wrongFutures(ctx perdure.WorkflowCtx, in map[string]int) ([]int, error) {
	var fs []*perdure.Future[int]
	for k := range in { // want `durable call charge\.Go in the order of a map`
		fs = append(fs, charge.Go(ctx, k))
	}
	return perdure.All(ctx, fs...)
}

func pay(ctx perdure.WorkflowCtx, who string) error { _, err := charge.Run(ctx, who); return err }

func wrongHelper(ctx perdure.WorkflowCtx, in map[string]int) (int, error) {
	for k := range in { // want `durable call pay in the order of a map`
		if err := pay(ctx, k); err != nil {
			return 0, err
		}
	}
	return 0, nil
}

func wrongAppend(ctx perdure.WorkflowCtx, in map[string]int) ([]string, error) {
	var keys []string
	for k := range in { // want `keys gets the order of a map, which differs on replay; sort it`
		keys = append(keys, k)
	}
	return keys, nil
}

func wrongText(ctx perdure.WorkflowCtx, in map[string]int) (s string, err error) {
	for k := range in { // want `s gets the order of a map`
		s += k
	}
	return s, nil
}

func wrongClosure(ctx perdure.WorkflowCtx, in map[string]int) (int, error) {
	one := func(k string) error { _, err := charge.Run(ctx, k); return err }
	for k := range in { // want `durable call charge\.Run in the order of a map`
		if err := one(k); err != nil {
			return 0, err
		}
	}
	return 0, nil
}

func wrongSyncMap(ctx perdure.WorkflowCtx, in *sync.Map) (int, error) {
	for k := range in.Range { // want `durable call charge\.Run in the order of a map`
		if _, err := charge.Run(ctx, k.(string)); err != nil {
			return 0, err
		}
	}
	return 0, nil
}

func wrongCollected(ctx perdure.WorkflowCtx, in map[string]int) ([]string, error) {
	return slices.Collect(maps.Keys(in)), nil // want `slices\.Collect gives the order of a map, which differs on replay; use slices\.Sorted`
}

// ---- right

func rightCollected(ctx perdure.WorkflowCtx, in map[string]int) ([]string, error) {
	keys := slices.Collect(maps.Keys(in))
	slices.Sort(keys)
	return keys, nil
}

func rightSorted(ctx perdure.WorkflowCtx, in map[string]int) (int, error) {
	for _, k := range slices.Sorted(maps.Keys(in)) {
		if _, err := charge.Run(ctx, k); err != nil {
			return 0, err
		}
	}
	return 0, nil
}

func rightSortedLater(ctx perdure.WorkflowCtx, in map[string]int) ([]string, error) {
	var keys []string
	for k := range in {
		keys = append(keys, k)
	}
	sort.Strings(keys)
	return keys, nil
}

func rightSum(ctx perdure.WorkflowCtx, in map[string]int) (n int, err error) {
	seen := map[string]bool{}
	for k, v := range in {
		n += v
		seen[k] = true
	}
	return n, nil
}

func rightInStep(ctx perdure.WorkflowCtx, in map[string]int) ([]string, error) {
	return perdure.Do(ctx, "keys", func(context.Context) (keys []string, err error) {
		for k := range in {
			keys = append(keys, k)
		}
		return keys, nil
	})
}
