"""Reading the web: pages of strangers, fetched from public addresses only and read in a process of its own."""
