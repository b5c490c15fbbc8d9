package events

// readEvent appends one event, unless its tag is unknown.
func (d *Decoder) readEvent() error {
	b, err := d.peek()
	if err != nil {
		return err
	}
	if isMap(b) {
		return d.eventOfMap()
	}
	n, err := d.array()
	if err != nil {
		return err
	}
	if n == 0 {
		return d.fail("an event without a tag")
	}
	tag, err := d.text()
	if err != nil {
		return err
	}
	e, fields, required := d.begin(tag)
	if n-1 < required {
		return d.fail("%s with %d fields: at least %d wanted", tag, n-1, required)
	}
	for i := range n - 1 {
		switch {
		case i < len(fields):
			err = d.readField(e, fields[i])
		case e.Kind == 0:
			err = d.skip(0)
		default:
			err = d.unknownField()
		}
		if err != nil {
			return err
		}
	}
	return d.finish(e)
}

// eventOfMap reads the tag first, wherever it stands.
func (d *Decoder) eventOfMap() error {
	start := d.pos
	n, err := d.dict()
	if err != nil {
		return err
	}
	var tag []byte
	for range n {
		key, err := d.text()
		if err != nil {
			return err
		}
		if string(key) == "type" {
			tag, err = d.text()
		} else {
			err = d.skip(0)
		}
		if err != nil {
			return err
		}
	}
	if tag == nil {
		return d.fail("an event without a type")
	}
	e, fields, required := d.begin(tag)
	if e.Kind == 0 {
		return d.finish(e)
	}
	d.pos = start
	if _, err = d.dict(); err != nil {
		return err
	}
	seen := 0
	for range n {
		key, err := d.text()
		if err != nil {
			return err
		}
		f := fieldNamed(fields, key)
		switch {
		case f >= 0:
			if seen&(1<<f) != 0 {
				return d.fail("%s with %s twice", tag, key)
			}
			seen |= 1 << f
			err = d.readField(e, fields[f])
		case string(key) == "type":
			err = d.skip(0)
		default:
			err = d.unknownField()
		}
		if err != nil {
			return err
		}
	}
	for i := range required {
		if seen&(1<<i) == 0 && fields[i].needed() {
			return d.fail("%s without %s", tag, fields[i])
		}
	}
	return d.finish(e)
}

// begin appends an empty event for tag and returns it with its fields in array
// order, and how many of these an array must have at least.
func (d *Decoder) begin(tag []byte) (e *Event, fields []field, required int) {
	d.batch.Events = append(d.batch.Events, Event{Group: NoGroup})
	e = &d.batch.Events[len(d.batch.Events)-1]
	switch string(tag) {
	case "BlockStored":
		e.Kind = Stored
		return e, storedFields, 4
	case "BlockRemoved":
		e.Kind = Removed
		return e, removedFields, 1
	case "AllBlocksCleared":
		e.Kind = Cleared
	}
	return e, nil, 0
}

// finish takes an event of unknown kind back.
func (d *Decoder) finish(e *Event) error {
	if e.Kind == 0 {
		d.batch.UnknownEvents++
		d.batch.Events = d.batch.Events[:len(d.batch.Events)-1]
	}
	return nil
}
