// Package flovyn serves the Flovyn protocol on api.Backend, so that applications written with the
// SDKs of that project run on Perdure without a change.
//
// A Flovyn run is an ordinary execution and a Flovyn task is an ordinary task. The door joins the
// engine as a worker of a queue while a client polls that queue: a poll takes an activation, a
// submission of commands becomes one turn, and the event log of the protocol is rendered from the
// history.
package flovyn
