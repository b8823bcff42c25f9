// Package table is the layout of the DynamoDB table and every conditional write
// of it.
//
// Read Store and Client first: they say what a caller can rely on. Table keeps
// their promises over any DB. It builds each write as a value (Write, in writes.go),
// sends it, and says what the answer means. Package memory evaluates writes, package
// dynamo sends them to DynamoDB; neither knows what a bucket is.
//
// Items are as DynamoDB holds them (Item). DecodeBucket reads a bucket item into
// what package quota decides by. An Image is the same for a stream record, read
// straight out of its text.
package table
