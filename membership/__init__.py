"""Who is connected: the Transis membership (faults and joins) over the transport."""
