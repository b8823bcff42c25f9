// Package proof holds the tests that show that sharding keeps a quota exact and
// counts usage once, whoever writes when, crashes or fails.
//
// The search (search_test.go) runs the real aggregator and the real Go client in
// every order of their requests. Each actor has the table.Table that ships, over
// a table.DB in which every request is a step (db_test.go). After every step the
// books (books_test.go) are compared with the table. A scenario is a table and
// the actors that meet on it. Storms, walks and cuts are random and go further.
//
// A mutant is a rule left out. The search finds those written by hand
// (mutants_test.go). Every condition of every write is left out too
// (generated_test.go), and is found or listed as redundant. A counterexample
// prints the writes that lead to it and the items after them (print_test.go).
//
// There is nothing here but tests.
package proof
