// Package deploy lets a command replay stored histories with the code of another program: the build
// to be deployed. The command starts the program, which must call [Serve] before it does anything
// else. The command writes histories to its standard input, each after its length. The program
// writes one verdict per history to its standard output.
//
// The program says hello first, so that the command detects a program that does not know the
// protocol. Neither side stores anything or executes a step.
package deploy
