// Package proof holds the tests that show that sharding keeps a quota exact and
// counts usage once, whoever writes when, crashes or fails.
//
// The search (search_test.go) runs the real aggregator and the real Go client
// (user_test.go), with other clients and operators by the same rules
// (client_test.go), over a table in memory, and goes through every order of their
// requests (package explore). After every step the books (books_test.go,
// books_uses_test.go) are compared with the table. A scenario is a table and the
// actors that meet on it. Storms, walks and cuts are random and go further than a
// search can.
//
// Each actor has a table.Table of its own, the one that ships, over a table.DB in
// which every request is a step (db_test.go). So the search runs every condition
// and every assignment that ships. requests_test.go only notes what a write was
// planned for, since the books need that.
//
// A mutant is a rule left out. The search finds those that are written by hand
// (mutants_test.go). Every single condition of every write is left out too
// (generated_test.go): a case of the conformance suite, a case of held_test.go or
// the search has to fail, or the condition is listed as redundant.
//
// A counterexample prints the writes that lead to it, the items after each, and
// how far all was right (print_test.go).
//
// There is nothing here but tests.
package proof
