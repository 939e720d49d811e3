// Package deploy lets a command replay stored histories with the code of another program: the build
// that is to be deployed. The command starts the program, which must call [Serve] before it does
// anything else. Histories go to its standard input, each with its length before it, and a verdict
// comes back from its standard output for each.
//
// The program says hello first, so that a program that does not know the protocol is found out.
// Nothing is stored and no step is executed on either side.
package deploy
