// Package deploy lets a command replay stored histories with the code of another program: the build
// that is to be deployed. The command starts the program, which must call [Serve] before it does
// anything else. The command writes histories to the standard input of the program, each preceded
// by its length. For each history it reads one verdict from the standard output of the program.
//
// The program says hello first, so that the command recognizes a program that does not know the
// protocol. Neither side stores anything or executes a step.
package deploy
