"""Parts of a scenario: what they promise (contracts), where they are found (registry), and the built-in ones."""
