// Package handlers has test cases for handlers: operations and views of entities, and RPCs of
// services. perdurevet reports a handler that blocks, that does work which the commit does not
// cover, or that changes a package variable.
package handlers

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"sync"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/perdurevet/testdata/src/helper"
)

type account struct {
	Cents int
	Since time.Time
}

var (
	accounts = perdure.NewEntity[account]("account")
	service  = perdure.NewService("gateway")
	calls    int
	ready    = make(chan int)
	cache    counter
)

type counter struct{ n int }

func (c *counter) add() { c.n++ }

// ---- waiting

var wrongSleep = perdure.NewOperation(accounts, "sleep", func(ctx perdure.EntityCtx, s *account, n int) (int, error) {
	time.Sleep(time.Second) // want `time\.Sleep in an entity: the other calls of the key wait, and a crash loses the timer; start a workflow that waits with ctx\.Sleep \[clock\]`
	return n, nil
})

func wrongBound(ctx perdure.EntityCtx, s *account, n int) (int, error) {
	<-time.After(time.Second) // want `time\.After in an entity: .* start a workflow that waits with ctx\.Timer \[clock\]` `a receive from a channel in an entity: .* \[channel\]`
	return n, nil
}

var (
	declared = perdure.DeclareOperation[int, int]("account", "later")
	bound    = perdure.BindOperation(accounts, declared, wrongBound)
)

var wrongRPC = perdure.NewRPC(service, "sleep", func(ctx perdure.EntityCtx, n int) (int, error) {
	time.Sleep(time.Second) // want `time\.Sleep in a service: the other calls of the key wait, and a crash loses the timer; start a workflow that waits with ctx\.Sleep \[clock\]`
	return n, nil
})

var declaredRPC = perdure.DeclareRPC[int, int]("gateway", "later")

var boundRPC = declaredRPC.Bind(func(ctx perdure.EntityCtx, n int) (int, error) {
	pause() // want `pause reaches time\.Sleep \(handlers\.go:\d+\) in a service: .* \[clock\]`
	return n, nil
})

var wrongView = perdure.NewView(accounts, "slow", func(s account, n int) (int, error) {
	deep() // want `deep reaches time\.Sleep \(handlers\.go:\d+\) in an entity: .* \[clock\]`
	return s.Cents, nil
})

func wrongHelper(ctx perdure.EntityCtx) {
	helper.Nap() // want `helper\.Nap reaches time\.Sleep \(helper\.go:\d+\) in an entity: .* \[clock\]`
}

// deep reads the clock, which is allowed. Then it sleeps.
func deep() {
	if time.Now().IsZero() {
		return
	}
	pause()
}

func pause() { time.Sleep(time.Second) }

// ---- work that the commit does not cover

var wrongGo = perdure.NewOperation(accounts, "go", func(ctx perdure.EntityCtx, s *account, n int) (int, error) {
	go fmt.Println(n) // want `a go statement in an entity: it outlives the call and is lost with the process; start a workflow or submit a task with the EntityCtx \[goroutine\]`
	return n, nil
})

var wrongRPCGo = perdure.NewRPC(service, "go", func(ctx perdure.EntityCtx, n int) (int, error) {
	spawn() // want `spawn reaches a go statement \(handlers\.go:\d+\) in a service: .* \[goroutine\]`
	return n, nil
})

func spawn() { go fmt.Println("spawned") }

var wrongNet = perdure.NewOperation(accounts, "fetch", func(ctx perdure.EntityCtx, s *account, url string) (int, error) {
	return fetch(url) // want `fetch reaches http\.Get \(handlers\.go:\d+\) in an entity: .* start a workflow or submit a task that does it \[effect\]`
})

func fetch(url string) (int, error) {
	answer, err := http.Get(url)
	if err != nil {
		return 0, err
	}
	return answer.StatusCode, answer.Body.Close()
}

var wrongWait = perdure.NewOperation(accounts, "wait", func(ctx perdure.EntityCtx, s *account, n int) (int, error) {
	var wg sync.WaitGroup
	wg.Go(func() { n++ })
	wg.Wait() // want `sync\.WaitGroup\.Wait in an entity: .* \[block\]`
	return n, nil
})

// ---- state of the process

var wrongCount = perdure.NewOperation(accounts, "count", func(ctx perdure.EntityCtx, s *account, n int) (int, error) {
	count()     // want `count reaches a change of package variable calls \(handlers\.go:\d+\) in an entity: it is lost with the process and not part of the commit; keep it in the state of the entity \[state\]`
	cache.add() // want `package variable cache changed by an entity: .* \[state\]`
	return n, nil
})

func count() { calls++ }

// ---- right

var rightClock = perdure.NewOperation(accounts, "clock", func(ctx perdure.EntityCtx, s *account, n int) (int, error) {
	s.Since = time.Now() // its outcome is stored, and it does not run again
	fmt.Println("counted", os.Getenv("HOME"))
	return n, nil
})

// A service is code with an address. It is meant for input and output. It may make several requests
// at the same time.
var rightService = perdure.NewRPC(service, "fetch", func(ctx perdure.EntityCtx, urls []string) (int, error) {
	var wg sync.WaitGroup
	for _, url := range urls {
		wg.Go(func() { fetch(url) })
	}
	done := make(chan int, 1)
	go func() { done <- len(urls) }()
	wg.Wait()
	return <-done, nil
})

var rightActivity = perdure.NewActivity("nap", func(ctx context.Context, n int) (int, error) {
	time.Sleep(time.Second)
	return n, nil
})

var rightAllowed = perdure.NewOperation(accounts, "allowed", func(ctx perdure.EntityCtx, s *account, n int) (int, error) {
	time.Sleep(time.Millisecond) //perdure:allow clock the device needs a moment between two writes
	return n, nil
})
