// Package allowed silences findings.
package allowed

import (
	"context"
	"time"

	"github.com/perdure/perdure"
)

func line(ctx perdure.WorkflowCtx, _ int) (time.Time, error) {
	return time.Now(), nil //perdure:allow clock only shown to a person
}

func above(ctx perdure.WorkflowCtx, _ int) (time.Time, error) {
	//perdure:allow clock,random only shown to a person
	return time.Now(), nil
}

func statement(ctx perdure.WorkflowCtx, _ int) (time.Time, error) {
	//perdure:allow clock only shown to a person
	return later(
		time.Now(),
		time.Hour,
	), nil
}

func later(t time.Time, d time.Duration) time.Time { return t.Add(d) }

func notTheBlock(ctx perdure.WorkflowCtx, n int) (time.Time, error) {
	/* want `silences nothing` */ //perdure:allow clock is about the line of the if
	if n > 0 {
		return time.Now(), nil // want `time\.Now in workflow code`
	}
	return time.Time{}, nil
}

func notTheNextLine(ctx perdure.WorkflowCtx, n int) (time.Time, error) {
	_ = time.Now()         //perdure:allow clock is about this line
	return time.Now(), nil // want `time\.Now in workflow code`
}

// whole is silenced as a whole.
//
//perdure:allow its result is never looked at
func whole(ctx perdure.WorkflowCtx, _ int) (time.Time, error) {
	begin := time.Now()
	time.Sleep(1)
	return begin, nil
}

func others(ctx perdure.WorkflowCtx, in []string) (n int, err error) {
	for range in {
		//perdure:allow stepkey they are all the same
		n, err = perdure.Do(ctx, "x", func(context.Context) (int, error) { return 1, nil })
	}
	ctx.Sleep(1) //perdure:allow nobody cares
	return n, err
}

func stamp() time.Time {
	return time.Now() //perdure:allow clock callers only show it
}

func rightHelper(ctx perdure.WorkflowCtx, _ int) (time.Time, error) { return stamp(), nil }

func otherCheck(ctx perdure.WorkflowCtx, _ int) (time.Time, error) {
	/* want `silences nothing: remove it, or move it to the line of the finding` */ //perdure:allow random the wrong one
	return time.Now(), nil                                                          // want `time\.Now in workflow code`
}

func noReason(ctx perdure.WorkflowCtx, _ int) (time.Time, error) {
	/* want `an allow comment needs a reason: //perdure:allow <check> <reason>` */ //perdure:allow clock
	return time.Now(), nil                                                         // want `time\.Now in workflow code`
}

func notHere(ctx perdure.WorkflowCtx, _ int) (time.Time, error) {
	/* want `silences nothing` */ //perdure:allow clock too far away

	return time.Now(), nil // want `time\.Now in workflow code`
}
