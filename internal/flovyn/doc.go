// Package flovyn serves the Flovyn protocol on api.Backend, so that applications written with the
// SDKs of that project run on Perdure without a change.
//
// A Flovyn run is an ordinary execution and a Flovyn task is an ordinary task. The door is this
// package's entry point for clients. While a client polls a queue, the door joins the engine as a
// worker of that queue. A poll takes an activation, which is a run that has something to do. A
// submission of commands becomes one turn. The door renders the event log of the protocol from the
// history. Some clients of late 2025 speak an older dialect of the protocol. A native worker is a
// worker that is built on the native core of the Flovyn project: its calls name the worker by the
// id of its registration.
package flovyn
