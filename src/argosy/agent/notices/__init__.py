"""What clouds announce to a machine about its end, as annotations of its Node. One module per cloud."""
