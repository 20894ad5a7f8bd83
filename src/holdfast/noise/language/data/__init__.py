"""Question sets for language models: PIQA, LAMBADA, HellaSwag, WinoGrande, in their own files' forms."""
