package statefile

import (
	"bytes"
	"encoding/json"

	"github.com/swansong-go/swansong/internal/proc"
)

// Some fields had other keys in files of version 1, and in those of version 2 until its keys were
// renamed. The methods UnmarshalJSON store what they find under an old key in the same field as
// what is under the new key. Old keys are never written.
//
// The methods can be deleted when [Version] is 3, because a launcher then reads no file of version
// 1, and released launchers of version 2 write only the new keys.

// UnmarshalJSON decodes a State. The containment may be under its old key, "pen".
func (s *State) UnmarshalJSON(text []byte) error {
	type fields State // without the method UnmarshalJSON, which would call itself
	return unmarshal(text, &struct {
		*fields
		Containment *proc.Containment `json:"pen"`
	}{(*fields)(s), &s.Containment})
}

// UnmarshalJSON decodes a Group, also one with old keys.
func (g *Group) UnmarshalJSON(text []byte) error {
	type fields Group
	return unmarshal(text, &struct {
		*fields
		ScaledDown *int `json:"fewer"`
		Finished   *int `json:"through"`
	}{(*fields)(g), &g.ScaledDown, &g.Finished})
}

// UnmarshalJSON decodes a Process, also one with old keys.
func (p *Process) UnmarshalJSON(text []byte) error {
	type fields Process
	return unmarshal(text, &struct {
		*fields
		StopAt      *int64 `json:"asked"`
		AskedAt     *int64 `json:"began"`
		NotReplaced *bool  `json:"spared"`
	}{(*fields)(p), &p.StopAt, &p.AskedAt, &p.NotReplaced})
}

// UnmarshalJSON decodes a Socket, also one with the old key of the address.
func (s *Socket) UnmarshalJSON(text []byte) error {
	type fields Socket
	return unmarshal(text, &struct {
		*fields
		Address *string `json:"has"`
	}{(*fields)(s), &s.Address})
}

// unmarshal decodes text into v. An unknown field is an error, whatever the settings of the decoder
// that called UnmarshalJSON.
func unmarshal(text []byte, v any) error {
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	return d.Decode(v)
}
