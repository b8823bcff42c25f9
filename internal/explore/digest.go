package explore

// Digest identifies a value by 64 bits that depend on nothing but the value.
// Two of a million states share one by chance once in tens of millions of
// searches.
type Digest uint64

// Add is the digest of what was digested so far, followed by values.
func (d Digest) Add(values ...uint64) Digest {
	for _, v := range values {
		d = Digest(mix(uint64(d) + 0x9e3779b97f4a7c15 + mix(v+1)))
	}
	return d
}

// Text is Add for a text.
func (d Digest) Text(text string) Digest {
	h := uint64(0xcbf29ce484222325)
	for i := range len(text) {
		h = (h ^ uint64(text[i])) * 0x100000001b3
	}
	return d.Add(h, uint64(len(text)))
}

// mix spreads every bit of x over all 64 (the finaliser of splitmix64).
func mix(x uint64) uint64 {
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}
