// Package proof holds the tests that show that sharding keeps a quota exact and
// counts usage once, whoever writes when, crashes or fails.
//
// The search (search_test.go) runs the real aggregator and the real Go client
// (user_test.go), with other clients and operators by the same rules
// (client_test.go), over a table in memory, and goes through every order of their
// requests (package explore). After every step the books (books_test.go,
// books_uses_test.go) are compared with the table. A scenario is a table and the
// actors that meet on it; a mutant is a rule left out, which the search has to
// find. Storms, walks and cuts are random and go further than a search can.
//
// Reading and raising siblings is cut into its requests here (requests_test.go),
// by the rule that table.Store states and the conformance suite checks of the
// stores; every other request is made by the store itself.
//
// There is nothing here but tests.
package proof
